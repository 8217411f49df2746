//! One clock for all processes of a test.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds on a clock that all processes of this host share.
pub fn shared_clock_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_micros() as u64
}
