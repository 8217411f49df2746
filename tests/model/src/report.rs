//! Runs a case and says what came out, as a row of the table in `README.md`.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::case::Case;
use crate::model::Protocol;

/// How many threads go through the states of one case.
const THREADS: usize = 2;

/// Proves, within the bounds of the case, that none of these properties is ever violated: ends only when there is no
/// state left that was not seen.
pub fn holds<const N: usize, const C: usize>(name: &str, case: Case, properties: &[&'static str]) {
    let (found, states) = run::<N, C>(name, case, properties, HasDiscoveries::AnyFailures);
    assert!(states > 1_000, "a model that moves has more than {states} states");
    assert!(found.is_empty(), "{name}: {found:#?}");
}

/// Shows that the property is violated, and by which steps.
pub fn fails<const N: usize, const C: usize>(name: &str, case: Case, property: &'static str) {
    let (found, _) = run::<N, C>(name, case, &[property], HasDiscoveries::AnyFailures);
    assert_eq!(found.len(), 1, "{name}: no violation was found of: {property}");
}

/// Shows that each of these things does happen: that what is proven is not proven of a model that stands still.
pub fn happens<const N: usize, const C: usize>(name: &str, case: Case, things: &[&'static str]) {
    let case = Case { witness: true, ..case };
    let (found, _) = run::<N, C>(name, case, things, HasDiscoveries::All);
    assert_eq!(found.len(), things.len(), "{name}: only these happen: {found:#?}");
}

/// A property that was violated, or that came about, and the steps that lead there.
type Found = (&'static str, Vec<String>);

fn run<const N: usize, const C: usize>(
    name: &str,
    case: Case,
    properties: &[&'static str],
    until: HasDiscoveries,
) -> (Vec<Found>, usize) {
    let start = Instant::now();
    let checker = Protocol::<N, C>::new(case, properties)
        .checker()
        .threads(THREADS)
        .finish_when(until)
        .spawn_bfs()
        .join();
    let mut found: Vec<Found> = checker
        .discoveries()
        .into_iter()
        .map(|(property, path)| {
            let steps = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
            (property, steps)
        })
        .collect();
    found.sort_unstable();

    let verdicts: Vec<_> =
        found.iter().map(|(thing, steps)| format!("{thing}: {} steps", steps.len())).collect();
    let verdict = if found.is_empty() { "exhausted".to_owned() } else { verdicts.join("; ") };
    println!(
        "| {} | {N} × {C} | {verdict} | {} | {:.1} s |",
        name.replace('_', " "),
        checker.unique_state_count(),
        start.elapsed().as_secs_f64()
    );
    (found, checker.unique_state_count())
}
