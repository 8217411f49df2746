use super::*;
use crate::primitives::replies::{mailboxes, read_release};
use crate::waiter::Waiter;

const OURS: &str = "a:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01";

#[test]
fn a_status_lists_who_waits_in_order_if_there_is_a_queue() {
    let lock = Lock::new(&Config::default(), "n".into(), false);
    let text = |text: &str| Reply::Text(text.to_owned());
    let read = |queue: &[Reply]| {
        let held = [Reply::Number(30_000), text(OURS), text("1"), Reply::Nil, Reply::Number(2)];
        lock.read_status(&Reply::List([&held, queue].concat()), true)
    };
    let waiters = |entries: &[Reply]| {
        let status = read(&[Reply::Number(9_000_000), Reply::List(entries.to_vec())])?;
        let waiting: Vec<_> = status.waiting.iter().map(Waiter::to_string).collect();
        Some((waiting.join(", "), status.waiting_clients))
    };
    assert_eq!(read(&[]).expect("without a queue").waiting, []);
    assert_eq!(waiters(&[]), Some((String::new(), 2)));
    let one = text("30000 1 00000000000000aa web-1:x");
    let same_name = text("30000 1 00000000000000bb web-1:y");
    let other = text("30000 16 00000000000000cc web-2:z");
    let [early, late] = [text("8000000"), text("8500000")];
    let entries = [&one, &early, &other, &late].map(Clone::clone);
    assert_eq!(waiters(&entries), Some(("web-1 for 1s, web-2 for 500ms".to_owned(), 4)));
    let foreign = [text("by hand"), text("1.5"), other.clone(), text("inf")];
    let ages = "by hand for 9s, web-2 for 0ns";
    assert_eq!(waiters(&foreign), Some((ages.to_owned(), 4)));
    for odd in [&entries[..3], &entries[1..3], &[one.clone(), text("soon")][..]] {
        assert_eq!(waiters(odd), None);
    }
    let count = |all: [&Reply; 3]| {
        let entries: Vec<Reply> = all.iter().flat_map(|it| [(*it).clone(), late.clone()]).collect();
        mailboxes(&Reply::List(entries))
    };
    assert_eq!((count([&one, &one, &other]), count([&one, &same_name, &other])), (2, 3));
}

#[test]
fn the_first_in_the_queue_is_counted_once_though_it_listens_for_redisson() {
    let lock = Lock::new(&Config::default(), "n".into(), false);
    let text = |text: &str| Reply::Text(text.to_owned());
    let waiting = |holder: Reply, subscribers, entries: &[Reply]| {
        let held = [Reply::Number(1), holder, text("1"), Reply::Nil];
        let queue = [Reply::Number(subscribers), Reply::Number(2), Reply::List(entries.to_vec())];
        let status = lock.read_status(&Reply::List([&held[..], &queue].concat()), true);
        status.expect("well formed").waiting_clients
    };
    let java = || text("0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42");
    let ours = || text(OURS);
    let entry = [text("30000 1 aa a:x"), text("1")];
    assert_eq!((waiting(java(), 2, &entry), waiting(java(), 0, &entry)), (2, 1));
    assert_eq!((waiting(java(), 2, &[]), waiting(ours(), 2, &entry)), (2, 3));
}

/// The arguments that follow those that every call has, in the places that the scripts give them.
#[test]
fn what_a_call_may_leave_out_comes_last() {
    let words = |call: Call, from: usize| -> Vec<String> {
        let text = |arg: &Arg| match arg {
            Arg::Text(text) => text.to_string(),
            Arg::Word(word) => (*word).to_owned(),
            Arg::Number(number) => number.to_string(),
            Arg::Bytes(bytes) => format!("{bytes:?}"),
        };
        assert!(call.args.len() >= from, "{call:?}");
        call.args[from..].iter().map(text).collect()
    };
    let ttl = Duration::from_secs(1);
    let [plain, sharded] = [false, true].map(|is| Lock::new(&Config::default(), "n".into(), is));
    let ticket = |entry: Option<&str>, by_message| Ticket {
        id: LeaseId(OURS.into()),
        entry: entry.map(Into::into),
        by_message,
    };
    let [without, queued, granted] =
        [ticket(None, false), ticket(Some("e"), false), ticket(Some("e"), true)];
    let none: [&str; 0] = [];
    let day = "86400000";
    assert_eq!(words(plain.acquire(&without, ttl, 1), 2), none);
    assert_eq!(words(plain.acquire(&without, ttl, 7), 2), ["7"]);
    assert_eq!(words(plain.acquire(&queued, ttl, 1), 2), ["1", "e", day, "1", "8"]);
    let all = ["1", "", day, "1", "8", "SHARDNUMSUB"];
    assert_eq!(words(sharded.acquire(&without, ttl, 1), 2), all);
    let all = ["1", "e", day, "1", "8", "SHARDNUMSUB"];
    assert_eq!(words(sharded.acquire(&queued, ttl, 1), 2), all);
    assert_eq!(words(plain.reclaim(&without, 1, ttl, 2..=3), 6), none);
    assert_eq!(words(plain.reclaim(&queued, 1, ttl, 2..=3), 6), ["e"]);
    assert_eq!(words(plain.release(&without, Duration::ZERO), 2), none);
    assert_eq!(words(plain.release(&without, ttl), 2), ["PUBLISH", "1000"]);
    assert_eq!(words(sharded.release(&without, Duration::ZERO), 2), ["SPUBLISH"]);
    assert_eq!(words(plain.release(&queued, ttl), 2), ["PUBLISH", "1000", day, "e"]);
    assert_eq!(words(plain.release(&granted, ttl), 2), ["PUBLISH", "1000", day, "e", "1"]);
    let led = Lock::new(&Config::default(), "n".into(), false).of_election();
    let said = words(led.release(&without, Duration::ZERO), 2);
    assert_eq!(said[..5], ["PUBLISH", "0", day, "", ""], "what the leader says follows: {said:?}");
    assert_eq!(words(plain.status(), 1), ["1000"]);
    assert_eq!(words(sharded.status(), 1), ["1000", "SHARDNUMSUB"]);
}

#[test]
fn a_lease_that_may_pass_on_is_freed_by_force_only_if_it_began_long_ago() {
    let age_us = |id: &str, grain_us| {
        let holder = Holder::new(id);
        match forced(Some(&holder), Duration::from_secs(1), grain_us) {
            (Arg::Text(named), Arg::Number(age_us)) if &*named == id => age_us,
            other => panic!("{other:?}"),
        }
    };
    let passes_on = OURS.replace("-4e21-", "-8e21-");
    assert_eq!(age_us(OURS, 10_000_000), 0, "it is one hold");
    assert!(age_us(&passes_on, 1) > 2_500_000);
    // Over several masters a token is rounded down, so that the lease looks older than it is.
    let rounded = age_us(&passes_on, 10_000_000);
    assert!(rounded >= 12_500_000, "{rounded}");
    assert!(matches!(forced(None, Duration::from_secs(1), 1), (Arg::Word(""), Arg::Word(""))));
}

#[test]
fn an_answer_that_no_script_gives_is_not_read() {
    let token = |number| read_token(&Reply::Number(number));
    assert_eq!((token(0), token((1 << 53) - 1)), (Some(0), Some((1 << 53) - 1)));
    assert_eq!((token(-1), token(1 << 53)), (None, None), "it may not be exact");
    let list = |numbers: &[i64]| {
        Reply::List(numbers.iter().map(|number| Reply::Number(*number)).collect())
    };
    let told = |Released { held, receivers, passed_over }| (held, receivers, passed_over);
    let freed = |reply: &Reply| read_lock_release(reply).map(told);
    let number = |number| freed(&Reply::Number(number));
    assert_eq!((number(0), number(1)), (Some((false, 0, 0)), Some((true, 0, 0))));
    assert_eq!((number(3), number(-1)), (Some((true, 2, 0)), None));
    assert_eq!(freed(&list(&[3, 5])), Some((true, 2, 5)));
    assert_eq!(freed(&list(&[0, 5])), Some((false, 0, 5)));
    assert_eq!(
        (freed(&list(&[1])), freed(&list(&[1, -1])), freed(&list(&[1, 2, 3]))),
        (None, None, None)
    );
    let released = |numbers: &[i64]| read_release(&list(numbers)).map(told);
    assert_eq!((released(&[1, 2]), released(&[0, 0])), (Some((true, 2, 0)), Some((false, 0, 0))));
    assert_eq!(released(&[1, 2, 3]), Some((true, 2, 3)));
    assert_eq!((released(&[1]), released(&[1, 2, 3, 4]), released(&[1, -2])), (None, None, None));
}
