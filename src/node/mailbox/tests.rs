use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::key::Holder;

const EPOCH: Epoch = Epoch(1);

fn id(text: &str) -> LeaseId {
    LeaseId(text.into())
}

fn read(text: &str) -> Option<Letter> {
    parse(text.as_bytes(), EPOCH, Timestamp::default())
}

/// A mailbox whose subscription was confirmed.
fn subscribed() -> Mailbox {
    let mailbox = Mailbox::new("client", 0x1f);
    mailbox.subscribed(mailbox.moves());
    mailbox
}

fn deliver(mailbox: &Mailbox, text: &str) {
    let delivered = mailbox.deliver(text.as_bytes(), Timestamp::default());
    assert_eq!(delivered, Ok(()), "{text:?}");
}

/// What the inbox has to say now.
fn next(inbox: &Inbox) -> Option<Letter> {
    inbox.next().now_or_never()
}

fn free(text: &str) -> Letter {
    Letter::Free { id: id(text) }
}

#[test]
fn a_mailbox_is_named_after_the_client_and_a_number_of_16_digits() {
    let mailbox = Mailbox::new("billing-7", 0x1f);
    assert_eq!(&**mailbox.channel(), "leasehold_mailbox:billing-7:c00000000000001f");
    assert_eq!(&**mailbox.nonce(), "c00000000000001f");
}

#[test]
fn a_grant_says_when_it_was_made_and_for_how_long() {
    let received_at = Timestamp::from_nanos(9);
    let text = "grant a:1 1795000000000001 2000 1795000000000064";
    let letter = parse(text.as_bytes(), EPOCH, received_at);
    let mut grant = MailedGrant {
        id: id("a:1"),
        server_us: 1_795_000_000_000_001,
        ttl: Duration::from_secs(2),
        block_end: 1_795_000_000_000_064,
        before: None,
        enclosed: None,
        epoch: EPOCH,
        received_at,
    };
    assert_eq!(letter, Some(Letter::Grant(grant.clone())));
    grant.before = Some(1_794_000_000_000_007);
    let with_one_more = format!("{text} 1794000000000007");
    let with_one_more = parse(with_one_more.as_bytes(), EPOCH, received_at);
    assert_eq!(with_one_more, Some(Letter::Grant(grant)));
}

#[test]
fn what_a_grant_brings_along_is_all_that_follows_its_numbers() {
    let read = |text: &[u8]| match parse(text, EPOCH, Timestamp::default()) {
        Some(Letter::Grant(grant)) => Some((grant.id, grant.block_end, grant.enclosed)),
        letter => {
            assert_eq!(letter, None);
            None
        }
    };
    let brought = |bytes: &[u8]| Some((id("a:1"), 21, Some(bytes.into())));
    for bytes in [&b"1:x"[..], b"", b" ", b"2: a  b ", b"1:\xff\x00 \n", b"item b:2 1 2 3 4"] {
        assert_eq!(read(&[b"item a:1 7 2000 21 ", bytes].concat()), brought(bytes), "{bytes:?}");
    }
    for text in
        ["item a:1 7 2000 21", "item a:1 7 2000  1:x", "item a:1 7 x 21 1:x", "item  7 2000 21 1:x"]
    {
        assert_eq!(read(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(read(b"grant a:1 7 2000 21"), Some((id("a:1"), 21, None)));
    assert_eq!(read(b"grant a:1 7 2000 21 1:x"), None, "only an item is brought along");
}

#[test]
fn a_grant_may_have_the_highest_token_that_is_exact() {
    let letter = read("grant a:1 1 2 9007199254740991");
    assert!(matches!(letter, Some(Letter::Grant(grant)) if grant.block_end == (1 << 53) - 1));
}

#[test]
fn the_first_in_the_queue_learns_who_holds_the_lock_and_for_how_long() {
    let next = |remaining, holder| Letter::Next { id: id("a:b:1"), remaining, holder };
    let minute = Some(Duration::from_secs(60));
    assert_eq!(read("next a:b:1 60000 b:2"), Some(next(minute, Holder::named("b:2"))));
    let spaces = next(Some(Duration::ZERO), Holder::named(" b  2 : x"));
    assert_eq!(read("next a:b:1 0  b  2 : x"), Some(spaces));
    assert_eq!(read("next a:b:1 -1 b"), Some(next(None, Holder::named("b"))));
    assert_eq!(read("free a:b:1"), Some(free("a:b:1")));
}

#[test]
fn what_no_script_writes_is_not_understood() {
    for text in [
        "",
        " ",
        "free",
        "free ",
        "free  ",
        "free a:1 ",
        "free a:1 x",
        "Free a:1",
        "grant a:1",
        "grant a:1 1 2",
        "grant a:1 1 2 3 4 5",
        "grant a:1 1 2 3 x",
        "grant a:1 1 2 3 -4",
        "grant a:1 1 2 3 ",
        "grant a:1 1  2 3",
        "grant  1 2 3",
        "grant a:1 -1 2 3",
        "grant a:1 1 1.5e3 3",
        "grant a:1 1 2 18446744073709551616",
        "grant a:1 1 2 18446744073709551615",
        "grant a:1 1 2 9007199254740992",
        "grant a:1 1 2 3 9007199254740992",
        "grant a:1 9007199254740992 2 3",
        "grant a:1 1 9007199254740992 3",
        "next a:1",
        "next a:1 5",
        "next a:1 5 ",
        "next a:1 -2 b:2",
        "next a:1 x b:2",
        "next a:1 9223372036854775808 b:2",
        "0",
    ] {
        assert_eq!(read(text), None, "{text:?}");
    }
    let mailbox = subscribed();
    assert_eq!(mailbox.deliver(b"free a\xff", Timestamp::default()), Ok(()), "nobody's id");
    assert_eq!(mailbox.deliver(b"\xff", Timestamp::default()), Err(NotUnderstood));
}

#[test]
fn letters_reach_the_inbox_that_waits_for_their_request_in_order() {
    let mailbox = subscribed();
    let (one, other) = (mailbox.inbox(), mailbox.inbox());
    let _registered = [one.register(&id("a:1")), one.register(&id("a:2"))];
    let _also = other.register(&id("a:3"));
    for text in ["free a:2", "free a:3", "free a:1", "free a:4"] {
        deliver(&mailbox, text);
    }
    assert_eq!([next(&one), next(&one), next(&one)], [Some(free("a:2")), Some(free("a:1")), None]);
    assert_eq!([next(&other), next(&other)], [Some(free("a:3")), None]);
}

#[test]
fn a_letter_replaces_an_older_one_about_the_same_request() {
    let mailbox = subscribed();
    let inbox = mailbox.inbox();
    let _registered = [inbox.register(&id("a:1")), inbox.register(&id("a:2"))];
    for text in ["next a:1 5 b:1", "free a:2", "next a:1 6 b:1", "grant a:1 1 2 3"] {
        deliver(&mailbox, text);
    }
    assert_eq!(next(&inbox), Some(free("a:2")));
    assert!(matches!(next(&inbox), Some(Letter::Grant(grant)) if grant.id == id("a:1")));
    assert_eq!(next(&inbox), None);
}

#[test]
fn after_its_registration_nothing_comes_about_a_request() {
    let mailbox = subscribed();
    let inbox = mailbox.inbox();
    let gone = inbox.register(&id("a:1"));
    let _stays = inbox.register(&id("a:2"));
    deliver(&mailbox, "free a:1");
    deliver(&mailbox, "free a:2");
    drop(gone);
    deliver(&mailbox, "free a:1");
    assert_eq!([next(&inbox), next(&inbox)], [Some(free("a:2")), None]);
}

#[tokio::test]
async fn a_dropped_wait_loses_no_letter() {
    let mailbox = Mailbox::new("client", 0);
    let inbox = mailbox.inbox();
    let _registered = inbox.register(&id("a:1"));
    // Dropped before it is polled, while it waits, and after it was woken.
    drop(inbox.next());
    let mut waits = Box::pin(inbox.next());
    assert_eq!(futures_util::poll!(waits.as_mut()), std::task::Poll::Pending);
    mailbox.subscribed(mailbox.moves());
    deliver(&mailbox, "free a:1");
    drop(waits);
    assert_eq!(next(&inbox), Some(free("a:1")));
    assert_eq!(next(&inbox), Some(Letter::Subscribed));
    assert_eq!(next(&inbox), None);
}

#[tokio::test]
async fn a_letter_wakes_the_one_who_waits() {
    let mailbox = subscribed();
    let inbox = mailbox.inbox();
    let _registered = inbox.register(&id("a:1"));
    let waits = tokio::spawn(async move { inbox.next().await });
    tokio::task::yield_now().await;
    deliver(&mailbox, "free a:1");
    let limit = Duration::from_secs(10);
    let letter = tokio::time::timeout(limit, waits).await.expect("it was woken");
    assert_eq!(letter.expect("no panic"), free("a:1"));
}

#[test]
fn each_subscription_is_another_epoch_and_all_who_wait_learn_of_it() {
    let mailbox = Mailbox::new("client", 0);
    let inbox = mailbox.inbox();
    let _registered = inbox.register(&id("a:1"));
    assert_eq!((mailbox.epoch(), next(&inbox)), (None, None));
    mailbox.subscribed(mailbox.moves());
    let first = mailbox.epoch().expect("it was confirmed");
    assert_eq!([next(&inbox), next(&inbox)], [Some(Letter::Subscribed), None]);
    mailbox.subscribed(mailbox.moves());
    assert_eq!((mailbox.epoch(), next(&inbox)), (Some(first), None), "confirmed twice");
    mailbox.unsubscribed();
    assert_eq!((mailbox.epoch(), next(&inbox)), (None, None));
    mailbox.subscribed(mailbox.moves());
    assert!(mailbox.epoch().is_some_and(|epoch| epoch != first));
    assert_eq!([next(&inbox), next(&inbox)], [Some(Letter::Subscribed), None]);
}

#[test]
fn nothing_counts_that_an_older_server_still_sends() {
    let mailbox = Mailbox::new("client", 0);
    let inbox = mailbox.inbox();
    let _registered = inbox.register(&id("a:1"));
    let before = mailbox.moves();
    mailbox.subscribed(before);
    assert_eq!(next(&inbox), Some(Letter::Subscribed));
    mailbox.moved();
    deliver(&mailbox, "free a:1");
    mailbox.subscribed(before);
    assert_eq!((mailbox.epoch(), next(&inbox)), (None, None));
    mailbox.subscribed(mailbox.moves());
    deliver(&mailbox, "free a:1");
    assert_eq!(next(&inbox), Some(free("a:1")));
    assert_eq!(next(&inbox), Some(Letter::Subscribed));
}

/// A grant comes while a request moves to another inbox: the older letter must not replace it there.
#[test]
fn a_letter_that_comes_while_a_request_moves_is_not_replaced_by_an_older_one() {
    let mailbox = subscribed();
    let grant = "grant a:1 1795000000000001 2000 1795000000000064";
    for round in 0..20_000 {
        let (own, common) = (mailbox.inbox(), mailbox.inbox());
        let mut registered = own.register(&id("a:1"));
        deliver(&mailbox, "free a:1");
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                deliver(&mailbox, grant);
            });
            both.wait();
            registered.move_to(&common);
        });
        let letters = std::iter::from_fn(|| next(&common)).filter(|letter| letter.id().is_some());
        let last = letters.last();
        assert!(matches!(last, Some(Letter::Grant(_))), "in round {round}: {last:?}");
    }
}

const MAILED: &str = "client:01234567-89ab-4def-c000-00000000001f";

#[test]
fn who_asks_for_a_lease_whose_id_names_the_mailbox_is_heard() {
    let mailbox = subscribed();
    assert!(mailbox.demand(&id("client:01234567-89ab-4def-c000-00000000001e")).is_none());
    assert!(mailbox.demand(&id("client:01234567-89ab-4def-d000-00000000001f")).is_none());
    assert!(mailbox.demand(&id("client:7")).is_none());
    let [one, other] = [(); 2].map(|()| mailbox.demand(&id(MAILED)).expect("it names it"));
    deliver(&mailbox, "wanted client:11234567-89ab-4def-c000-00000000001f");
    deliver(&mailbox, "wanted  ");
    assert_eq!(one.said().now_or_never(), None, "that is another one");
    deliver(&mailbox, &format!("wanted {MAILED}"));
    for demand in [&one, &other] {
        assert_eq!(demand.said().now_or_never(), Some(true));
    }
    drop(one);
    deliver(&mailbox, &format!("wanted {MAILED}"));
    assert_eq!(other.said().now_or_never(), Some(true));
    drop(other);
    assert!(mailbox.shared.state.lock().demands.is_empty(), "nobody asks any more");
}

#[test]
fn one_who_asks_learns_that_something_may_have_been_missed() {
    let mailbox = Mailbox::new("client", 0x1f);
    let demand = mailbox.demand(&id(MAILED)).expect("it names it");
    let wanted = format!("wanted {MAILED}");
    deliver(&mailbox, &wanted);
    assert_eq!(demand.said().now_or_never(), None, "nothing counts without a subscription");
    mailbox.subscribed(mailbox.moves());
    assert_eq!(demand.said().now_or_never(), Some(false));
    deliver(&mailbox, &wanted);
    mailbox.unsubscribed();
    mailbox.subscribed(mailbox.moves());
    assert_eq!(demand.said().now_or_never(), Some(true), "what was said before is not forgotten");
}
