//! The feature `json`: items as values.

use std::collections::BTreeMap;

use leasehold::Error;

use super::{all_are_done, jobs};
use crate::checks::setup;

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Order {
    number: u32,
    lines: Vec<String>,
}

#[tokio::test]
async fn items_of_a_queue_can_be_values_and_what_is_no_such_value_is_not_lost() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let order = Order { number: 7, lines: vec!["größe \"m\"".into()] };
    assert_eq!(queue.push_json(&order).await.expect("pushed"), 1);
    let delivery = queue.pop().await.expect("an item");
    assert_eq!(delivery.payload(), r#"{"number":7,"lines":["größe \"m\""]}"#.as_bytes());
    assert_eq!(delivery.json::<Order>().expect("an order"), order);
    let error = delivery.json::<u32>().expect_err("it is no number");
    assert!(
        matches!(&error, Error::InvalidPayload { queue, .. } if &**queue == "jobs"),
        "{error:?}"
    );
    assert!(delivery.is_held() && !error.is_retryable());
    delivery.reject().await.expect("held");
    let dead = queue.dead(9).await.expect("an answer");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].json::<Order>().expect("an order"), order);
    let error = dead[0].json::<u32>().expect_err("it is no number");
    assert!(
        matches!(&error, Error::InvalidPayload { queue, .. } if &**queue == "jobs"),
        "{error:?}"
    );
    assert_eq!(queue.redrive(9).await.expect("done"), 1);
    queue.pop().await.expect("the same").ack().await.expect("held");

    // A key that is no text: nothing is pushed.
    let nothing = BTreeMap::from([(vec![1], 1)]);
    let error = queue.push_json(&nothing).await.expect_err("it is no JSON");
    assert!(matches!(error, Error::InvalidPayload { .. }), "{error:?}");
    assert!(queue.is_empty().await.expect("an answer"));

    let url = server.url();
    let threads = std::thread::spawn(move || {
        let client = leasehold::blocking::Client::connect(&url).expect("connected");
        let queue = client.queue("jobs");
        queue.push_json(&order).expect("pushed");
        let delivery = queue.pop().expect("an item");
        assert_eq!(delivery.json::<Order>().expect("an order"), order);
        assert!(delivery.json::<u32>().is_err());
        delivery.ack().expect("held");
    });
    threads.join().expect("no panic");
    all_are_done(&server, &client).await;
}
