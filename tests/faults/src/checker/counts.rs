//! S3: how deep a hold is.

use super::{View, s};
use crate::event::What;

pub(super) fn check(view: &mut View<'_>) {
    for index in 0..view.holds.len() {
        replay(view, index);
    }
    compare(view);
}

/// Each guard of a hold says a count of one more than were there.
fn replay(view: &mut View<'_>, index: usize) {
    let hold = view.holds[index].clone();
    let mut steps = Vec::new();
    for call in &hold.calls {
        let Some(grant) = &view.calls[*call].granted else { continue };
        steps.push((grant.granted_at, Some(grant.count)));
        if let Some((at, ..)) = grant.releasing {
            steps.push((at, None));
        }
    }
    steps.sort_unstable();
    let mut depth = 0;
    for (at, count) in steps {
        let Some(count) = count else {
            depth -= 1;
            continue;
        };
        depth += 1;
        view.checked("S3");
        if count != depth {
            let what = format!("guard {depth} says a count of {count} at {}: {hold}", s(at));
            view.found("S3", at, what);
        }
    }
}

/// The servers never count more than there were, and in the end the same.
fn compare(view: &mut View<'_>) {
    for (process, event) in view.history.events() {
        let What::Counted { op, local, server } = &event.what else { continue };
        view.checked("S3");
        // A server may refuse to write a count down while there is a fault, and of several a slow one may be told
        // of it with the next renewal only.
        let calm = view.setting.nodes == 1
            && view.is_calm(event.at.saturating_sub(A_WHILE), event.at, None);
        if server > local || (server < local && calm) {
            let at = s(event.at);
            let what = format!("{server} at the servers, {local} in {process}, op {op}, at {at}");
            view.found("S3", event.at, what);
        }
    }
}

/// For so long before a count is read there must have been no fault, in nanoseconds.
const A_WHILE: u64 = 1_000_000_000;
