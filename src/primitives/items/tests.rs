use super::*;

const ID: &str = "worker-1:01234567-89ab-4def-8123-456789abcdef";

fn number(number: i64) -> Reply {
    Reply::Number(number)
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn items() -> Items {
    Items::new(&"jobs".into())
}

#[test]
fn how_an_item_is_taken_fits_into_a_number() {
    let how = |newest_first, most_often| Items { newest_first, most_often, ..items() }.how();
    assert_eq!([how(false, None), how(true, None)], [1, 2]);
    assert_eq!([how(false, Some(3)), how(true, Some(3))], [7, 8]);
}

#[test]
fn a_grant_brings_the_content() {
    let item = Item::new(items());
    let granted = |how: i64| Reply::List(vec![number(1), number(how), text(ID), text("2 7:a:b")]);
    assert_eq!(item.read_acquire(&granted(1)), None, "of another way to take it");
    let how = item.items.how();
    assert_eq!(item.read_acquire(&granted(how as i64)), Some(Answer::granted(how)));
    let content = item.content_of(ID).expect("it was read");
    assert_eq!((content.deliveries, &*content.payload), (2, &b"a:b"[..]));
    assert_eq!(item.content_of("worker-1:another"), None);
}

#[test]
fn who_gets_nothing_is_told_how_many_are_lent_and_how_many_wait() {
    let item = Item::new(items());
    assert_eq!(item.why_in_vain(0), "no item is free, and nobody else waits");
    let refused = |lent: i64| {
        let refusal = [0, -1].map(number).into_iter().chain([text(ID)]);
        let queue = [0, -1, 7].map(number).into_iter().chain([Reply::List(Vec::new())]);
        Reply::List(refusal.chain(queue).chain([number(lent)]).collect())
    };
    for (lent, others, text) in [
        (0, 0, "there is no item, and nobody else waits: push some, or wait longer"),
        (
            1,
            1,
            "1 item is lent or comes again later, and 1 other waits: Queue::status lists who has it",
        ),
        (
            2,
            3,
            "2 items are lent or come again later, and 3 others wait: Queue::status lists who has them",
        ),
    ] {
        let answer = item.read_acquire(&refused(lent));
        assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
        assert_eq!(item.why_in_vain(others), text);
    }
    assert_eq!(item.read_acquire(&refused(-1)), None);
}

#[test]
fn a_message_brings_the_content_of_its_grant_and_no_other() {
    let item = Item::new(items());
    let id = LeaseId(ID.into());
    item.enclosed(&id, Some(b"3 7:a:\xff"));
    let content = item.content_of(ID).expect("it came along");
    assert_eq!((content.deliveries, &*content.payload), (3, &b"a:\xff"[..]));
    assert_eq!(item.content_of("worker-1:another"), None);
    for nothing in [None, Some(&b"3 7"[..]), Some(b"x 7:a")] {
        item.enclosed(&id, Some(b"1 7:before"));
        item.enclosed(&id, nothing);
        assert_eq!(item.content_of(ID), None, "{nothing:?}");
    }
}

#[test]
fn only_the_delivery_that_a_worker_has_seen_ends_as_it_says() {
    let item = Item::new(items());
    let release = |id: &str| {
        let ticket = Ticket { id: LeaseId(id.into()), entry: None, by_message: false };
        let args = item.release(&ticket, Duration::ZERO).args;
        format!("{:?} {:?} {:?}", args[1], args[2], args[4])
    };
    let undone = r#"Word("undo") Number(0) Word("")"#;
    item.ends_as(Outcome::Ack);
    assert_eq!(release(ID), undone, "nobody has seen it");
    let content = Content { deliveries: 1, at_us: 7, payload: (*b"a").into() };
    item.is_seen(ID.into(), &content);
    assert_eq!(release(ID), r#"Word("retry") Number(0) Number(7)"#);
    for (outcome, ends) in [
        (Outcome::Ack, r#"Word("ack") Number(0) Number(7)"#),
        (Outcome::Retry(Duration::from_secs(1)), r#"Word("retry") Number(1000) Number(7)"#),
        (Outcome::Reject, r#"Word("reject") Number(0) Number(7)"#),
    ] {
        item.ends_as(outcome);
        assert_eq!(release(ID), ends);
        assert_eq!(release("worker-1:another"), undone, "another request");
    }
}

/// A worker may decide at the moment of the loss, and is told of that.
#[test]
fn what_is_decided_behind_a_loss_is_void() {
    let item = Item::new(items());
    let content = Content { deliveries: 1, at_us: 7, payload: (*b"a").into() };
    item.is_seen(ID.into(), &content);
    item.ends_as(Outcome::Reject);
    item.lost(&LeaseId(ID.into()));
    item.ends_as(Outcome::Ack);
    let ticket = Ticket { id: LeaseId(ID.into()), entry: None, by_message: false };
    let args = item.release(&ticket, Duration::ZERO).args;
    assert_eq!(format!("{:?} {:?}", args[1], args[2]), r#"Word("retry") Number(0)"#);
}

#[test]
fn the_content_is_two_numbers_and_what_follows_the_first_colon() {
    let read = |content: Reply| Item::read_content(&Reply::List(vec![number(1), content]));
    let content =
        |deliveries, payload: &[u8]| Content { deliveries, at_us: 7, payload: payload.into() };
    assert_eq!(read(text("3 7:a:b")), Some(Some(content(3, b"a:b"))));
    assert_eq!(read(text("1 7:")), Some(Some(content(1, b""))));
    let bytes = Reply::Raw { bytes: b"1 7:\xff".to_vec(), shown: String::new() };
    assert_eq!(read(bytes), Some(Some(content(1, b"\xff"))));
    assert_eq!(Item::read_content(&number(0)), Some(None));
    for bad in [text("a"), text("1:a"), text("x 7:a"), text("1 x:a"), Reply::Nil] {
        assert_eq!(read(bad.clone()), None, "{bad:?}");
    }
}

#[test]
fn a_status_tells_deliveries_from_what_waits_to_be_delivered_again() {
    let due = text(&format!("due:{ID}"));
    let listed = [text(ID), number(1), number(500), due, number(2), number(0)];
    let reply = Reply::List(vec![
        number(5),
        number(2),
        number(1),
        number(7_000_000),
        Reply::List(listed.to_vec()),
        Reply::List(vec![text(&format!("1000 1 0a {ID}")), text("6000000")]),
        Reply::List(vec![text("poison")]),
    ]);
    let (status, dead) = items().read_status(&reply).expect("it is understood");
    assert_eq!((status.waiting_items, status.lent_items), (5, 1));
    assert_eq!((status.retrying_items, status.dead_items), (1, 1));
    assert_eq!(status.lent[0].holder.client(), Some("worker-1"));
    assert_eq!(status.lent[0].remaining, Duration::from_millis(500));
    assert_eq!(status.waiting[0].waited, Duration::from_secs(1));
    let poison = DeadItem { payload: b"poison"[..].into(), queue: items().name().clone() };
    assert_eq!(dead, [poison]);
    assert!(!format!("{dead:?}").contains("112"), "its payload is not shown");
}
