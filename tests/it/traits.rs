//! What the compiler knows of the public types: they may move to other threads and be shared among them, and be used behind a
//! panic of the caller's.

use std::collections::BTreeSet;
use std::panic::{RefUnwindSafe, UnwindSafe};

use leasehold::{
    Blocked, Changes, Client, ClientBuilder, ClosedReason, DeadItem, Deadlocks, Delivery, Election,
    ElectionState, Error, Finding, FindingKind, Guard, HeldLock, Histogram, Holder, Latch, Leader,
    Leadership, Lent, ListedLock, Listing, LockKind, LockOrder, LockStatus, LossReason, Lost,
    MultiGuard, MultiLock, MultiLost, Mutex, NodeFailure, NodeState, NodeStatus, Notice, Observer,
    Outcome, Owner, Permit, PermitHolder, PubSub, Queue, QueueStatus, ReadGuard, ReadVersion,
    RwLock, SelfWait, Semaphore, SemaphoreStatus, Signal, SignalGroup, Stats, Waiter, WriteGuard,
    blocking,
};

use super::layers::sources;

/// Calls a function that is generic over one type for each of several.
macro_rules! each {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

fn may_be_shared<T: Send + Sync + 'static>() {}
fn may_be_moved<T: Unpin>() {}
fn lives_through_a_panic<T: UnwindSafe + RefUnwindSafe>() {}

#[test]
fn every_type_may_move_to_other_threads_and_be_shared() {
    each!(may_be_shared: Blocked, Changes, Client, ClientBuilder, ClosedReason, DeadItem, Deadlocks, Delivery, Election,
        ElectionState, Error, Finding, FindingKind, Guard, HeldLock, Histogram, Holder, Latch, Leader, Leadership, Lent,
        ListedLock, Listing, LockKind, LockOrder, LockStatus, LossReason, Lost, MultiGuard, MultiLock, MultiLost, Mutex,
        NodeFailure, NodeState, NodeStatus, Notice, Observer, Outcome<()>, Owner, Permit, PermitHolder, PubSub, Queue,
        QueueStatus, ReadGuard, ReadVersion, RwLock, SelfWait, Semaphore, SemaphoreStatus, Signal, SignalGroup, Stats,
        Waiter, WriteGuard);
    #[cfg(feature = "metrics")]
    each!(may_be_shared: leasehold::Metrics);
    // A handle may be on any thread; the guards that it gives to a thread stay there, and those of a named owner may move.
    each!(may_be_shared: blocking::Client, blocking::Delivery, blocking::Election, blocking::Latch,
        blocking::Leadership, blocking::Listing, blocking::LossWatch, blocking::MultiLock, blocking::Mutex,
        blocking::Observer, blocking::Permit, blocking::Queue, blocking::RwLock, blocking::Semaphore, blocking::Signal,
        blocking::SignalGroup, blocking::NamedOwner);
    type Named = blocking::NamedOwner;
    each!(may_be_shared: blocking::Guard<Named>, blocking::MultiGuard<Named>, blocking::ReadGuard<Named>,
        blocking::WriteGuard<Named>, blocking::MultiLock<Named>, blocking::Mutex<Named>, blocking::RwLock<Named>);
}

#[test]
fn what_is_awaited_by_reference_may_be_moved() {
    each!(may_be_moved: Lost, MultiLost, Delivery, Guard, Leadership, MultiGuard, Permit, ReadGuard, WriteGuard,
        Listing, Observer);
}

#[test]
fn clients_handles_and_guards_live_through_a_panic_of_the_caller() {
    each!(lives_through_a_panic: Client, Election, Latch, MultiLock, Mutex, Queue, RwLock, Semaphore, Signal,
        SignalGroup, Delivery, Guard, Leadership, MultiGuard, Permit, ReadGuard, WriteGuard);
    each!(lives_through_a_panic: blocking::Client, blocking::Election, blocking::Latch, blocking::MultiLock,
        blocking::Mutex, blocking::Queue, blocking::RwLock, blocking::Semaphore, blocking::Signal, blocking::SignalGroup,
        blocking::Delivery, blocking::Guard, blocking::Leadership, blocking::MultiGuard, blocking::Permit,
        blocking::ReadGuard, blocking::WriteGuard);
    type Named = blocking::NamedOwner;
    each!(lives_through_a_panic: blocking::Guard<Named>, blocking::MultiGuard<Named>, blocking::ReadGuard<Named>,
        blocking::WriteGuard<Named>, blocking::MultiLock<Named>, blocking::Mutex<Named>, blocking::RwLock<Named>);
}

/// The marks of owners aside, of which there are no values, each type that is exported stands above.
#[test]
fn no_type_is_forgotten() {
    let here = include_str!("traits.rs");
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|char: char| !char.is_alphanumeric() && char != ':');
        words.map(|word| word.trim_end_matches(':').to_owned()).collect()
    };
    let known = words(here);
    for (path, prefix) in [("lib.rs", ""), ("blocking/mod.rs", "blocking::")] {
        let text = sources().into_iter().find(|(of, _)| of == path).expect("it is there").1;
        let exports = text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
        let names: Vec<String> = exports
            .flat_map(|list| list.split(|char: char| !char.is_alphanumeric()))
            .filter(|word| word.starts_with(char::is_uppercase) && *word != "ThisThread")
            .map(|word| format!("{prefix}{word}"))
            .collect();
        assert!(names.len() > 15, "{path}: {names:?}");
        for name in names {
            let forms = [name.clone(), format!("leasehold::{name}")];
            assert!(forms.iter().any(|form| known.contains(form)), "{path} exports {name}");
        }
    }
}
