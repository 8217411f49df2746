use std::cell::RefCell;
use std::time::Duration;

use super::*;
use crate::error::{Cause, Redirect, State};
use crate::fleet::Slot;
use crate::node::Node;
use crate::script::LOCK_RENEW;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

fn sent(counts_from: u64) -> Vote<bool> {
    Vote::of(Ok(Sent::in_vain(7, 3, at(counts_from))), Form::PLAIN, at(5))
}

fn failed() -> Vote<bool> {
    Vote::of(Err(Fault::Closed), Form::PLAIN, at(5))
}

fn clock() -> Clock {
    Clock::of_this_runtime()
}

fn call() -> Call {
    Call { script: &LOCK_RENEW, keys: Vec::new(), args: Vec::new() }
}

fn busy() -> Fault {
    let text = "TRYAGAIN Multiple keys request during rehashing of slot";
    Fault::Refused(Cause::new(text, State::of(Some("TRYAGAIN"), text)))
}

/// A round of one call to a slot, which came to `first`.
fn redirected(clock: &Clock, first: Fault) -> (Vec<Site>, Round<bool>) {
    let sites = vec![Site::Slot(Slot::unconnected(clock))];
    let mut round = Round::send(&sites, clock, call());
    let sent = Sent::answered(7, 1, Err(first));
    round.votes = [Vote::of(Ok(sent), Form::PLAIN, clock.now())].into();
    (sites, round)
}

#[test]
fn a_vote_says_on_which_connection_and_in_which_run_it_was_sent_and_whether_it_counts() {
    for (counts_from, counts) in [(0, true), (5, true), (6, false)] {
        let vote = sent(counts_from);
        assert_eq!((vote.sent_on(), vote.run, vote.counts), (Some(7), 3, counts));
        assert!(vote.is_pending() && vote.value().is_none());
    }
    let vote = failed();
    assert_eq!((vote.sent_on(), vote.run, vote.counts), (None, 0, false));
    assert_eq!(vote.source(), Source::default());
    assert!(!vote.is_pending() && vote.value().is_none());
    let vote = Vote::known(true);
    assert_eq!((vote.sent_on(), vote.run, vote.counts), (None, 0, true));
    assert!(!vote.is_pending() && vote.value() == Some(&true));
}

#[test]
fn every_vote_is_in_the_tally_once() {
    let votes = [true, true, true, false, false].map(Vote::known);
    let others = [failed(), failed(), failed(), failed(), sent(0)];
    let votes: Vec<_> = votes.into_iter().chain(others).collect();
    let tally = Round::tally(&votes, |yes| *yes);
    assert_eq!((tally.yes, tally.no, tally.failed, tally.pending), (3, 2, 4, 1));
}

#[tokio::test]
async fn who_may_still_answer_is_no_cause_of_a_failure() {
    let clock = clock();
    let mut round = Round::send(&[], &clock, call());
    round.votes.extend([sent(0), failed(), Vote::known(true)]);
    let causes = |round: &Round<bool>| -> Vec<(usize, bool)> {
        let silent = Fault::NoAnswer(Duration::ZERO);
        let faults = round.faults(&silent);
        faults.map(|(node, fault)| (node, matches!(fault, Fault::NoAnswer(_)))).collect()
    };
    assert_eq!(causes(&round), [(1, false)]);
    let rules = Rules {
        sites: &[],
        clock: &clock,
        until: clock.now(),
        read: |_: &Reply| None,
        again: Site::send_on,
    };
    let over = round.settle(rules, |_, over| over.then_some(())).await;
    assert_eq!((over, causes(&round)), (Some(()), vec![(0, true), (1, false)]));
}

#[tokio::test]
async fn a_call_that_did_not_run_is_sent_again_until_it_does() {
    let clock = clock();
    let to = Redirect { slot: 1, to: "a:1".into() };
    let (sites, mut round) = redirected(&clock, Fault::Ask(to.clone()));
    let asked = RefCell::new(Vec::new());
    let again = |_: &Site, _: &Call, path: &Path| {
        asked.borrow_mut().push((path.asked.clone(), clock.now()));
        match asked.borrow().len() {
            1 => Ok(Sent::answered(7, 1, Err(busy()))),
            2 => Err(Fault::Down("no connection yet".into())),
            _ => Ok(Sent::answered(8, 2, Ok(Reply::Number(1)))),
        }
    };
    let until = clock.now().plus(Duration::from_secs(20));
    let read = |reply: &Reply| Some(*reply == Reply::Number(1));
    let rules = Rules { sites: &sites, clock: &clock, until, read, again };
    assert_eq!(round.verdict(rules, |yes| *yes).await, Verdict::Yes);
    let vote = &round.votes[0];
    assert_eq!((vote.value(), vote.sent_on(), vote.run), (Some(&true), Some(8), 2));
    let (paths, times): (Vec<_>, Vec<_>) = asked.into_inner().into_iter().unzip();
    assert_eq!(paths, [Some(to), None, None], "the slot's own node, after a pause");
    assert!(times[1].since(times[0]) >= Duration::from_millis(2));
    assert!(times[2].since(times[1]) >= Duration::from_millis(4), "the pauses grow");
    // A server is silent since it was asked last, and a lease begins when it was asked first.
    assert!(vote.last_sent_at > times[1] && round.sent_at < times[0]);
    assert!(sites[0].round_trip() < clock.now().since(times[1]));
}

#[tokio::test]
async fn what_kept_a_call_from_being_sent_again_is_the_cause_of_its_failure() {
    let clock = clock();
    let (sites, mut round) = redirected(&clock, busy());
    let again = |_: &Site, _: &Call, _: &Path| Ok(Sent::answered(7, 1, Err(busy())));
    let until = clock.now().plus(Duration::from_millis(30));
    let rules = Rules { sites: &sites, clock: &clock, until, read: |_: &Reply| None, again };
    assert_eq!(round.verdict(rules, |yes| *yes).await, Verdict::Unknown);
    let silent = Fault::NoAnswer(Duration::ZERO);
    let faults: Vec<_> = round.faults(&silent).collect();
    assert!(matches!(&faults[..], [(0, fault)] if fault.is_try_again()), "{faults:?}");
}

#[tokio::test]
async fn what_ran_in_part_when_it_was_sent_first_may_have_run_whatever_came_of_it_later() {
    let clock = clock();
    let text = "ERR Script attempted to access a non local key in a cluster node";
    let in_part = Fault::Refused(Cause::new(text, State::of(Some("ERR"), text)));
    for (first, may_have_run) in [(in_part, true), (busy(), false)] {
        let (sites, mut round) = redirected(&clock, first);
        let again = |_: &Site, _: &Call, _: &Path| Ok(Sent::answered(7, 1, Err(busy())));
        let until = clock.now().plus(Duration::from_millis(30));
        let rules = Rules { sites: &sites, clock: &clock, until, read: |_: &Reply| None, again };
        assert_eq!(round.verdict(rules, |yes| *yes).await, Verdict::Unknown);
        assert_eq!(round.votes[0].may_have_run(), may_have_run);
    }
}

#[tokio::test]
async fn an_answer_tells_how_long_a_round_trip_takes() {
    let clock = clock();
    let sites = [Site::Node(Node::unconnected(&clock))];
    let mut round = Round::send(&sites, &clock, call());
    let sent = Sent::answered(7, 1, Ok(Reply::Number(1)));
    round.votes = [Vote::of(Ok(sent), Form::PLAIN, clock.now())].into();
    let read = |_: &Reply| Some(true);
    let until = clock.now().plus(Duration::from_secs(20));
    let rules = Rules { sites: &sites, clock: &clock, until, read, again: Site::send_on };
    assert_eq!(sites[0].round_trip(), Duration::ZERO);
    assert_eq!(round.verdict(rules, |yes| *yes).await, Verdict::Yes);
    assert!(sites[0].round_trip() > Duration::ZERO);
}

#[tokio::test]
async fn what_puts_a_lease_back_is_sent_with_its_text_to_a_server_that_may_not_know_it() {
    let clock = clock();
    let sites = [Site::Node(Node::unconnected(&clock))];
    let form = |round: Round<bool>| round.votes[0].path.form;
    let whole = Form { whole: true, ..Form::VOTE };
    assert_eq!(form(Round::reclaim(&sites, &clock, call())), whole);
    assert_eq!(form(Round::elect(&sites, &clock, call())), Form::VOTE);
    assert_eq!(form(Round::renew(&sites, &clock, call())), Form::DURABLE);
    assert_eq!(form(Round::send(&sites, &clock, call())), Form::PLAIN);
}
