use super::*;

fn servers(up: &[bool]) -> Vec<Candidate> {
    let server =
        |(number, is_up): (usize, &bool)| Candidate { number: number as u32, is_up: *is_up };
    up.iter().enumerate().map(server).collect()
}

fn walk() -> Walk {
    let keys = |of| Step::Keys { pattern: "*".to_owned(), of };
    Walk::new(vec![keys(KeyType::Hash), keys(KeyType::SortedSet)])
}

/// Where it looks next: server, step and cursor.
fn place(walk: &mut Walk, servers: &[Candidate], needed: usize) -> Option<(u32, KeyType, u64)> {
    walk.next(servers, needed).map(|(server, step, cursor)| match step {
        Step::Keys { of, .. } => (server, *of, cursor),
        Step::Channels => panic!("there is no such step"),
    })
}

const RUN: Source = Source { member: 0, run: 1 };

#[test]
fn it_looks_at_all_keys_of_each_type_on_each_server() {
    let (mut walk, servers) = (walk(), servers(&[true, true]));
    let mut seen = Vec::new();
    let mut progress = vec![walk.progress()];
    while let Some(place) = place(&mut walk, &servers, 2) {
        seen.push(place);
        let next = if place.2 == 0 { 7 } else { 0 };
        walk.looked(RUN, next, 1000, Some(2000));
        progress.push(walk.progress());
    }
    let of = |server| {
        [(server, KeyType::Hash, 0), (server, KeyType::Hash, 7)]
            .into_iter()
            .chain([(server, KeyType::SortedSet, 0), (server, KeyType::SortedSet, 7)])
    };
    assert_eq!(seen, of(0).chain(of(1)).collect::<Vec<_>>());
    assert_eq!(progress, [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]);
}

#[test]
fn a_server_that_runs_anew_is_looked_at_from_the_beginning() {
    let (mut walk, servers) = (walk(), servers(&[true]));
    for (next, run, expected) in [
        (7, 1, (0, KeyType::Hash, 7)),
        (0, 1, (0, KeyType::SortedSet, 0)),
        (9, 2, (0, KeyType::Hash, 0)),
        (3, 2, (0, KeyType::Hash, 3)),
    ] {
        place(&mut walk, &servers, 1).expect("it goes on");
        walk.looked(Source { run, ..RUN }, next, 1000, None);
        assert_eq!(place(&mut walk, &servers, 1), Some(expected));
    }
}

#[test]
fn of_several_masters_another_takes_the_place_of_one_that_fails() {
    let (mut walk, servers) = (walk(), servers(&[false, true, true]));
    let server = |walk: &mut Walk| place(walk, &servers, 2).map(|(server, ..)| server);
    assert_eq!(server(&mut walk), Some(1), "it is connected");
    walk.looked(RUN, 0, 1000, None);
    assert!(walk.failed(&servers));
    assert_eq!(server(&mut walk), Some(2));
    assert!(!walk.failed(&servers), "one is too few");
    assert_eq!(server(&mut walk), Some(2), "it goes on where it was");
    for _ in 0..2 {
        walk.looked(RUN, 0, 1000, None);
    }
    assert_eq!(server(&mut walk), Some(1), "the other one from the beginning");
    for _ in 0..2 {
        walk.looked(RUN, 0, 1000, None);
    }
    assert_eq!((server(&mut walk), walk.progress()), (None, 1.0));
}

#[test]
fn a_master_that_comes_is_looked_at_and_one_that_goes_is_left() {
    let (mut walk, both) = (walk(), servers(&[true, true]));
    let server =
        |walk: &mut Walk, of: &[Candidate]| place(walk, of, of.len()).map(|(server, ..)| server);
    assert_eq!(server(&mut walk, &both), Some(0));
    assert!(!walk.failed(&both), "no other has its keys");
    assert_eq!(server(&mut walk, &both[1..]), Some(1));
    for _ in 0..2 {
        walk.looked(RUN, 0, 1000, None);
    }
    assert_eq!(server(&mut walk, &both[1..]), None);
    let new = [both[1], Candidate { number: 2, is_up: false }];
    assert_eq!(server(&mut walk, &new), Some(2));
}
