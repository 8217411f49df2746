use std::pin::pin;

use futures_util::FutureExt;

use super::*;
use crate::engine::gate::tests::held;
use crate::error::LossReason;

/// As one whose thread had no turn, or whose host was suspended: the time and the lock are both gone when it looks again.
#[tokio::test]
async fn who_looks_late_is_told_of_the_loss_whichever_of_the_locks_it_is() {
    const TIMEOUT: Duration = Duration::from_millis(5);
    for lost in 0..2 {
        let entries = [held(), held()];
        let lease = entries[lost].hold().lease.clone();
        let guard = MultiGuard::new(entries.into_iter().map(Guard::new).enumerate());
        let mut waits = pin!(guard.lost_within(TIMEOUT));
        assert!(waits.as_mut().now_or_never().is_none(), "both are held");
        lease.lose(LossReason::Gone);
        // Once this timer is over, so is the other, which was made before.
        tokio::time::sleep(2 * TIMEOUT).await;
        let told = waits.now_or_never().expect("its time is over");
        let is_told = matches!(told, Some(Error::Lost { reason: LossReason::Gone, .. }));
        assert!(is_told, "the loss of {lost}: {told:?}");
    }
}
