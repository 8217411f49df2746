//! One lock, Java and Rust: leasehold and the real Redisson on the same servers.
//!
//! Run with `cargo test --test interop`; it needs a JDK of 17 or later and Maven (`scripts/setup-java`). The
//! helper in `java/` is built for each of the versions below, and nearly every case is run with each of them.

mod deployments;
mod exclusion;
mod fairness;
mod fencing;
mod forcing;
mod kinds;
mod latches;
mod leases;
mod looking;
mod masters;
mod names;
mod nesting;
mod permits;
mod queues;
mod rw;
mod several;
mod side;
mod stampede;
mod waking;
mod worker;

/// A test of a case for each version of Redisson.
macro_rules! with_each_redisson {
    ($($case:ident),+ $(,)?) => { $(
        mod $case {
            use leasehold_testkit::java::Version;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn with_redisson_4_7_0() {
                super::$case(Version::V4_7_0).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn with_redisson_3_52_0() {
                super::$case(Version::V3_52_0).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn with_redisson_3_28_0() {
                super::$case(Version::V3_28_0).await;
            }
        }
    )+ };
}
pub(crate) use with_each_redisson;
