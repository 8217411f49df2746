//! Gates whose server nothing reaches.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;

use super::backing_off::BackingOff;
use super::machine::Allowed;
use super::situation::Situation;
use super::state::Begun;
use super::wait_list::Seeker;
use super::{Engine, Entry, Gate, TakenBy};
use crate::clock::{Clock, Timestamp};
use crate::config::{LeaseTerms, Terms};
use crate::engine::kind::plain::Plain;
use crate::engine::kind::{Kind, Sharing, Wanted};
use crate::engine::lease::tests::{grant, watched};
use crate::error::Fault;
use crate::fleet::Fleet;
use crate::key::LeaseId;
use crate::node::Node;
use crate::owner::{Owner, Place};

fn gate() -> Arc<Gate> {
    let clock = Clock::of_this_runtime();
    let fleet = Fleet::Nodes([Node::unconnected(&clock)].into());
    let (config, tasks) = Default::default();
    let engine = Engine::new(config, clock, fleet, Arc::default(), tasks, Arc::default());
    engine.gate(&Plain::new(Sharing::Alone, 0))
}

/// A hold of which its server knows nothing, and whose lease nobody watches.
pub(crate) fn held() -> Entry {
    let (gate, lease, owner) = (gate(), Arc::new(watched()), Owner::new());
    let now = gate.engine.clock.now();
    let by = TakenBy { owner: &owner, place: Place::here(), at: Location::caller() };
    let hold = gate.hold(lease, by, 100, now);
    Entry::new(&hold, Terms::of(LeaseTerms::Watched(Duration::from_secs(30))), now)
}

/// A request that was not sent.
fn begun(gate: &Arc<Gate>) -> Box<Begun> {
    let side: Arc<dyn Kind> = Arc::new(Plain::new(Sharing::Alone, 0));
    let terms = Terms::of(LeaseTerms::Watched(Duration::from_secs(30)));
    let attempt = gate.quorum.attempt(&side, LeaseId("a:1".into()), terms.ttl(), 1, false);
    let wanted = Wanted { side, terms };
    Box::new(Begun { attempt, seeker: Seeker::Ordinary, wanted, refusal: None })
}

#[tokio::test]
async fn the_driver_is_woken_by_a_request_that_it_has_to_take_over_and_not_by_taking_it_over() {
    let gate = gate();
    let begun = begun(&gate);
    gate.update(|state, _| state.begun = Some(begun));
    assert!(gate.changed.notified().now_or_never().is_some());
    drop(gate.update(|state, _| state.begun.take()));
    assert!(gate.changed.notified().now_or_never().is_none());
}

#[tokio::test]
async fn a_request_that_nobody_needs_is_given_back_while_the_lock_is_in_use_here() {
    let gate = gate();
    let mut situation = Situation {
        held: None,
        passes_on: true,
        rests: true,
        allowed: Allowed::Fair,
        listens: false,
        until: Timestamp::NEVER,
        stand_back: None,
        ordinary: None,
        fair: Vec::new(),
        hurried: false,
        begun: Some(begun(&gate)),
        refusal: None,
    };
    BackingOff::new(gate).look(&mut situation);
    assert!(situation.begun.is_none());
}

#[tokio::test]
async fn an_outage_that_begins_in_a_quarantine_does_not_count_from_its_end() {
    let gate = gate();
    let wanted = begun(&gate).wanted.clone();
    let fails_by = |fault| {
        let claim = gate.update(|state, _| gate.claim(state, wanted.clone(), 0));
        claim.failed(&fault, true);
        let now = gate.engine.clock.now();
        gate.update(|state, _| state.trouble.as_ref().is_some_and(|it| it.since <= now))
    };
    assert!(!fails_by(Fault::Quarantined(Duration::from_secs(30))), "the server answers");
    assert!(fails_by(Fault::Down("connection refused".into())));
}

#[tokio::test]
async fn of_the_grants_that_nobody_takes_those_by_message_are_counted() {
    let gate = gate();
    let wanted = begun(&gate).wanted.clone();
    for (by_message, count) in [(false, 0), (true, 1), (false, 1)] {
        let mut grant = grant(1);
        grant.ticket.by_message = by_message;
        gate.seat_seeker(grant, Seeker::Ordinary, &wanted, None);
        let given_back = &gate.quorum.events().queue.grants_given_back;
        assert_eq!(given_back.load(Ordering::Relaxed), count, "by message: {by_message}");
    }
}
