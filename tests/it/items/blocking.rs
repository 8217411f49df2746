//! Queues for threads.

use std::time::Duration;

use leasehold::blocking::Client;

use crate::support::Server;

#[tokio::test]
async fn threads_push_and_pop() {
    let server = Server::start().await;
    let url = server.url();
    let worked = tokio::task::spawn_blocking(move || {
        let client = Client::connect(&url)?;
        let queue = client.queue("jobs").with_max_deliveries(2).with_capacity(9);
        let worker = std::thread::spawn({
            let queue = queue.clone();
            move || queue.pop().map(|delivery| (delivery.payload().to_vec(), delivery.ack()))
        });
        std::thread::sleep(Duration::from_millis(100));
        queue.push("1")?;
        let (payload, acked) = worker.join().expect("no panic")?;
        assert_eq!((payload, acked.is_ok()), (b"1".to_vec(), true));
        assert!(queue.try_pop()?.is_none());
        assert!(queue.try_pop_for(Duration::from_millis(500))?.is_none());
        let error = queue.pop_with_timeout(Duration::from_millis(500)).expect_err("there is none");
        assert!(error.is_timeout(), "{error:?}");
        queue.push_many(["2", "3"])?;
        drop(queue.pop()?);
        let again = queue.newest_first().pop()?;
        assert_eq!((again.payload(), again.deliveries(), again.queue()), (&b"2"[..], 2, "jobs"));
        again.retry(Duration::ZERO)?;
        queue.pop()?.reject()?;
        assert_eq!((queue.status()?.dead_items, queue.dead(9)?.len()), (2, 2));
        assert!(queue.is_empty()?);
        assert_eq!((queue.redrive(9)?, queue.len()?), (2, 2));
        for _ in 0..2 {
            let delivery = queue.pop()?;
            assert!(delivery.is_held() && delivery.remaining() > Duration::ZERO);
            assert_eq!(delivery.wait_lost(Duration::from_millis(1))?, None);
            delivery.extend(Duration::from_secs(40))?;
            delivery.ack()?;
        }
        for zero in [queue.with_capacity(0), queue.with_max_deliveries(0)] {
            let error = zero.push("4").expect_err("it is refused");
            assert!(matches!(error, leasehold::Error::InvalidConfig { .. }), "{error:?}");
        }
        let unlimited = queue.with_capacity(None).with_max_deliveries(None);
        assert_eq!(unlimited.push("4")?, 1);
        unlimited.pop()?.ack()?;
        Ok::<_, leasehold::Error>(())
    });
    worked.await.expect("no panic").expect("no error");
}
