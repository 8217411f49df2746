//! Ports that stay ours while nobody listens on them.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// The next port to try to listen on.
///
/// It lies below the range from which systems take ports for outgoing connections: a server that is down, or a proxy
/// that refuses, finds its port free again. Another process may have it: then try the next one.
pub(crate) fn next() -> u16 {
    let start = process::id().wrapping_mul(STRIDE);
    let step = STEPS.fetch_add(1, Ordering::Relaxed);
    let port = FIRST + start.wrapping_add(step) % COUNT;
    u16::try_from(port).expect("BUG: all of the range fits")
}

static STEPS: AtomicU32 = AtomicU32::new(0);
const FIRST: u32 = 12_000;
const COUNT: u32 = 18_000;
/// Test processes that run side by side have neighbouring ids: they start this far apart.
const STRIDE: u32 = 331;
