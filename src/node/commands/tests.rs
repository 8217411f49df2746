use tokio::sync::mpsc;

use super::*;
use crate::node::tests::use_up_the_turn;

#[tokio::test]
async fn a_command_is_sent_at_once_whatever_its_task_has_done_in_this_turn() {
    let (sender, mut wire) = mpsc::channel(1);
    use_up_the_turn();
    let _reply = InFlight::start(async move {
        sender.send(()).await.expect("there is room");
        std::future::pending::<Result<Reply, Fault>>().await
    });
    assert_eq!(wire.try_recv(), Ok(()));
}
