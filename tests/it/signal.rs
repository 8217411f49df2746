//! Signals and groups of them: what is signalled while nobody listens is not lost.

mod failing;
mod groups;
mod misuse;
mod waiting;

use std::time::Duration;

use crate::checks::LIMIT;
use crate::support::{Server, eventually, subscribers};

const MS: Duration = Duration::from_millis(1);
const KEY: &str = "leasehold_signal:{prices}";
const CHANNEL: &str = "leasehold_signal__channel:{prices}";
const GROUP_KEY: &str = "leasehold_signal_group:{prices}";
const GROUP_CHANNEL: &str = "leasehold_signal_group__channel:{prices}";

async fn somebody_listens(server: &Server, channel: &str, many: i64) {
    let listens = async || subscribers(server, channel).await == many;
    eventually(LIMIT, "they listen", listens).await;
}
