//! What tests need that look at what is traced.

use std::sync::OnceLock;

use tracing::{Dispatch, Subscriber, subscriber::DefaultGuard};

/// Gives all that this thread traces to `subscriber`, until the guard is dropped.
pub(crate) fn traced_to(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    // As long as there is one subscriber only, `tracing` asks the thread that traces a line first whether anybody wants it:
    // that may be another test's, which has none.
    static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
    ANOTHER.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
    tracing::subscriber::set_default(subscriber)
}
