//! M1: what a client is told whose masters are those in use, or are not.

use super::{View, s};
use crate::{
    event::{Outcome, What, Why},
    strays::STRAYS,
};

/// What clients may name from one time on.
struct State {
    /// When an operator began to type it, and when it was on all servers.
    from: u64,
    everywhere: u64,
    lists: Vec<String>,
}

pub(super) fn check(view: &mut View<'_>) {
    let states = states(view);
    let named: Vec<_> = view
        .history
        .events()
        .filter_map(|(process, event)| match &event.what {
            What::Named { list, since, refused } => {
                Some((process.to_owned(), event.at, list.clone(), *since, refused.clone()))
            }
            _ => None,
        })
        .collect();
    for (process, at, list, since, refused) in named {
        // While it is typed, some servers have it and some do not.
        let ends = |index: usize| states.get(index + 1).map_or(u64::MAX, |next| next.everywhere);
        let possible: Vec<&State> = states
            .iter()
            .enumerate()
            .filter(|(index, state)| state.from <= at && ends(*index) >= since)
            .map(|(_, state)| state)
            .collect();
        let (Some(first), allowed) =
            (possible.first(), possible.iter().filter(|state| state.lists.contains(&list)).count())
        else {
            continue;
        };
        view.checked("M1");
        let problem = match &refused {
            Some(told) if allowed == possible.len() => {
                Some(format!("refused though its masters are in use: {told}"))
            }
            None if allowed == 0 => Some("not refused".to_owned()),
            Some(told) if allowed == 0 && !possible.iter().any(|it| helps(told, &list, it)) => {
                Some(format!("refused without what helps: {told:?}"))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let used = first.lists.join(" | ");
            let what =
                format!("{process} at {} names `{list}`, used are `{used}`: {problem}", s(at));
            view.found("M1", at, what);
        }
    }
    for index in 0..view.calls.len() {
        let call = &view.calls[index];
        let released = call.granted.as_ref().and_then(|grant| grant.released);
        let is_told = matches!(call.refused, Some((Why::OtherMasters, _)))
            || matches!(released, Some((_, Outcome::OtherMasters)));
        if is_told && call.process != STRAYS {
            let (at, what) = (call.ended_at.unwrap_or(call.asked_at), format!("{call}"));
            view.found("M1", at, format!("refused though its masters are in use: {what}"));
        }
    }
}

fn states(view: &View<'_>) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for (_, event) in view.history.events() {
        let What::Masters { lists, everywhere } = &event.what else { continue };
        match states.last_mut() {
            Some(last) if *everywhere && last.lists == *lists => last.everywhere = event.at,
            _ => states.push(State { from: event.at, everywhere: event.at, lists: lists.clone() }),
        }
    }
    states
}

/// Whether a refusal names the masters of the client and those in use, and says what to do.
fn helps(told: &str, list: &str, state: &State) -> bool {
    let names = |list: &str| list.split(' ').all(|address| told.contains(address));
    let says = ["docs/deployments.md (\"To change the masters\")", "SET leasehold_masters "];
    names(list)
        && state.lists.iter().all(|used| names(used))
        && says.iter().all(|words| told.contains(words))
}
