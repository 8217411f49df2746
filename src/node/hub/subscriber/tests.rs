use futures_util::FutureExt;

use super::*;
use crate::node::hub::Hub;
use crate::node::hub::tests::{Server, endpoint};
use crate::node::mailbox::Mailbox;
use crate::node::tests::use_up_the_turn;

/// On a sharded connection, tokio counts what is sent as a part of that.
#[tokio::test]
async fn a_request_is_sent_in_its_turn_whatever_the_task_has_done_in_this_one() {
    let endpoint = endpoint(&Server::default());
    let (hub, orders) = Hub::unattended(endpoint, Mailbox::new("client", 0));
    let mut subscriber = Subscriber::new(hub.shared.clone(), orders);
    let (sender, mut wire) = mpsc::channel(1);
    use_up_the_turn();
    subscriber.await_answer(async move {
        sender.send(()).await.expect("there is room");
        Answer::Done
    });
    let answer = subscriber.pending.next().now_or_never();
    assert_eq!(wire.try_recv(), Ok(()));
    assert!(matches!(answer, Some(Some(Answer::Done))));
}
