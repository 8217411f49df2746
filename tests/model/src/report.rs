//! Runs a case and says what came out, as a row of the table in `README.md`.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Tests named like the cases of the table: each gives its name to the row. The `Protocol` of the model is in scope. Those that take
/// longest have `#[cfg(feature = "long")]`.
#[macro_export]
macro_rules! checks {
    ($($(#[$attribute:meta])* $name:ident: $check:ident($case:expr, $properties:expr);)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            let case = $case;
            let size = case.size();
            $crate::report::$check(stringify!($name), &size, Protocol::new(case, &$properties[..]));
        }
    )*};
}

/// How many threads go through the states of one case.
const THREADS: usize = 2;

/// A model that can be explored.
pub trait Explored: Send + Sync + 'static
where
    Self: Model<
            State: Clone + PartialEq + Debug + Hash + Send + Sync + 'static,
            Action: Clone + PartialEq + Debug,
        >,
{
}

impl<M> Explored for M
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + Debug + Hash + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Debug,
{
}

/// Proves, within the bounds of the case, that none of the model's properties is ever violated: ends only when there is
/// no state left that was not seen.
pub fn holds<M: Explored>(name: &str, size: &str, model: M) {
    let (found, states) = run(name, size, model, HasDiscoveries::AnyFailures);
    assert!(found.is_empty(), "{name}: {found:#?}");
    assert!(states > 1_000, "a model that moves has more than {states} states");
    assert!(found.is_empty(), "{name}: {found:#?}");
}

/// Shows that the model's property is violated, and by which steps.
pub fn fails<M: Explored>(name: &str, size: &str, model: M) {
    let (found, _) = run(name, size, model, HasDiscoveries::AnyFailures);
    assert_eq!(found.len(), 1, "{name}: no violation was found");
}

/// Shows that each of the things that the model looks for does happen: that what is proven is not proven of a model that
/// stands still.
pub fn happens<M: Explored>(name: &str, size: &str, model: M) {
    let things = model.properties().len();
    let (found, _) = run(name, size, model, HasDiscoveries::All);
    assert_eq!(found.len(), things, "{name}: only these happen: {found:#?}");
}

/// A property that was violated, or that came about, and the steps that lead there.
type Found = (&'static str, Vec<String>);

fn run<M: Explored>(
    name: &str,
    size: &str,
    model: M,
    until: HasDiscoveries,
) -> (Vec<Found>, usize) {
    let start = Instant::now();
    let checker = model.checker().threads(THREADS).finish_when(until).spawn_bfs().join();
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
        "| {} | {size} | {verdict} | {} | {:.1} s |",
        name.replace('_', " "),
        checker.unique_state_count(),
        start.elapsed().as_secs_f64()
    );
    (found, checker.unique_state_count())
}
