//! The guides and reference documents of the repository.
//!
//! Start with the [front page](crate). The [glossary] explains the words that all pages use. The [cookbook] has recipes for common
//! programs, [settings] lists every setting, and [testing] shows how to test a service. [deployments] says what is promised on
//! which servers; [operating] and [logs] are for those who run them. [from_redisson] helps those who know Redisson,
//! [redisson_compatibility] says what Java and Rust may share, and [security] which rights the user needs. [known_failures],
//! [reliability] and [benchmarks] say what was tested and measured. [architecture], [protocol] and [contributing] are for those who
//! change the library.

/// Defines the targets of the documents' links in this documentation. The files define the same names for readers of the
/// repository; the first definition counts.
macro_rules! links {
    () => {
        "\
[architecture]: crate::docs::architecture
[benchmarks]: crate::docs::benchmarks
[compatibility]: crate::docs::redisson_compatibility
[contributing]: crate::docs::contributing
[cookbook]: crate::docs::cookbook
[deadlocks]: crate::docs::cookbook#deadlocks
[deployments]: crate::docs::deployments
[ex-cache-invalidation]: crate::docs::cookbook::cache_invalidation
[ex-cache-refresh]: crate::docs::cookbook::cache_refresh
[ex-cron]: crate::docs::cookbook::cron
[ex-fencing-in-sql]: crate::docs::cookbook::fencing_in_sql
[ex-health]: crate::docs::cookbook::health
[ex-job-queue]: crate::docs::cookbook::job_queue
[ex-leader]: crate::docs::cookbook::leader
[ex-opentelemetry]: crate::docs::cookbook::opentelemetry
[ex-rate-limit]: crate::docs::cookbook::rate_limit
[ex-several-names]: crate::docs::cookbook::several_names
[ex-spawned-tasks]: crate::docs::cookbook::spawned_tasks
[ex-startup-latch]: crate::docs::cookbook::startup_latch
[ex-stop-on-loss]: crate::docs::cookbook::stop_on_loss
[ex-web-service]: crate::docs::cookbook::web_service
[ex-worker-threads]: crate::docs::cookbook::worker_threads
[from-redisson]: crate::docs::from_redisson
[glossary]: crate::docs::glossary
[known-failures]: crate::docs::known_failures
[logs]: crate::docs::logs
[operating]: crate::docs::operating
[operating-passwords]: crate::docs::operating#passwords-and-tokens-that-change
[over-several-masters]: crate::docs::redisson_compatibility#over-several-masters
[protocol]: crate::docs::protocol
[protocol-notes]: crate::docs::protocol#deadlocks-over-several-processes
[protocol-queue]: crate::docs::protocol#the-queue
[protocol-sharing]: crate::docs::protocol#sharing-and-waiting-in-one-process
[reliability]: crate::docs::reliability
[security]: crate::docs::security
[sentinel]: crate::docs::deployments#sentinel
[settings]: crate::docs::settings
[shared-latches]: crate::docs::redisson_compatibility#latches
[shared-rw-locks]: crate::docs::redisson_compatibility#read-write-locks
[shared-semaphores]: crate::docs::redisson_compatibility#semaphores
[spawned-tasks]: crate::docs::cookbook#spawned-tasks
[testing]: crate::docs::testing
"
    };
}

#[doc = "The words that all pages and error messages use.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/glossary.md")]
pub mod glossary {}

#[doc = "Recipes for common programs, to copy from.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/cookbook.md")]
pub mod cookbook {
    /// Declares a page with the source of an example.
    macro_rules! recipe {
        ($name:ident, $file:literal) => {
            // The source is not an ignored doctest: the example itself is compiled and run.
            #[cfg(not(doctest))]
            #[doc = concat!("The source of the example `", stringify!($name), "`.\n\n```ignore")]
            #[doc = include_str!($file)]
            #[doc = "```"]
            pub mod $name {}
        };
    }

    recipe!(web_service, "../examples/web_service.rs");
    recipe!(worker_threads, "../examples/worker_threads.rs");
    recipe!(cron, "../examples/cron.rs");
    recipe!(stop_on_loss, "../examples/stop_on_loss.rs");
    recipe!(fencing_in_sql, "../examples/fencing_in_sql.rs");
    recipe!(spawned_tasks, "../examples/spawned_tasks.rs");
    recipe!(several_names, "../examples/several_names.rs");
    recipe!(job_queue, "../examples/job_queue.rs");
    recipe!(leader, "../examples/leader.rs");
    recipe!(rate_limit, "../examples/rate_limit.rs");
    recipe!(cache_refresh, "../examples/cache_refresh.rs");
    recipe!(startup_latch, "../examples/startup_latch.rs");
    recipe!(cache_invalidation, "../examples/cache_invalidation.rs");
    recipe!(health, "../examples/health.rs");
    recipe!(opentelemetry, "../examples/opentelemetry.rs");
}

// Its code needs leasehold-test, whose tests run it.
#[cfg(not(doctest))]
#[doc = "How to test what a service does at a timeout, a loss and an outage.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = "All settings, with defaults and ranges.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/settings.md")]
pub mod settings {}

#[doc = "What is promised on which servers, and what to set on them.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/deployments.md")]
pub mod deployments {}

#[doc = "For those who run the servers and the services.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = "All lines, spans and fields of the log.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/logs.md")]
pub mod logs {}

#[doc = "For Java teams: what becomes of Redisson's calls and settings.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/from-redisson.md")]
pub mod from_redisson {}

#[doc = "What Java and Rust may share on the same servers, and what they must not.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/redisson-compatibility.md")]
pub mod redisson_compatibility {}

#[doc = "Reported failures of other locks, each with a test.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/known-failures.md")]
pub mod known_failures {}

#[doc = "What is protected, and the rights that the server's user needs.\n\n"]
#[doc = links!()]
#[doc = include_str!("../SECURITY.md")]
pub mod security {}

#[doc = "What happened when we tried to break the promises.\n\n"]
#[doc = links!()]
#[doc = include_str!("../RELIABILITY.md")]
pub mod reliability {}

#[doc = "What locks cost, alone and beside other libraries.\n\n"]
#[doc = links!()]
#[doc = include_str!("../benches/README.md")]
pub mod benchmarks {}

#[doc = "The source tree, the life of a lock, and the order of the mutexes.\n\n"]
#[doc = links!()]
#[doc = include_str!("../ARCHITECTURE.md")]
pub mod architecture {}

#[doc = "Why the scripts, messages and deadlines are safe.\n\n"]
#[doc = links!()]
#[doc = include_str!("../docs/protocol.md")]
pub mod protocol {}

#[doc = "How to build, test and change the library.\n\n"]
#[doc = links!()]
#[doc = include_str!("../CONTRIBUTING.md")]
pub mod contributing {}
