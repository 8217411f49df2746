use super::*;
use crate::config::LeaseTerms;
use crate::engine::kind::Sharing;
use crate::engine::kind::plain::Plain;

fn terms(fair: bool) -> Terms {
    Terms { fair, ..Terms::of(LeaseTerms::Watched(std::time::Duration::from_secs(1))) }
}

fn waiter(owner: &Owner, terms: Terms) -> Waiter {
    Waiter {
        owner: owner.clone(),
        wanted: Wanted { side: Arc::new(Plain::new(Sharing::Alone, 0)), terms },
        place: Place::here(),
        joined_at: Timestamp::default(),
        for_ever: true,
        asked_at: Location::caller(),
        slow_at: Timestamp::default().plus(SLOW),
        turn: oneshot::channel().0,
    }
}

#[test]
fn the_earliest_arrival_comes_first_whenever_it_joined() {
    let (one, other) = (Owner::new(), Owner::new());
    let mut list = WaitList::default();
    for (arrival, owner) in [(5, &one), (3, &other), (4, &one)] {
        list.join(arrival, waiter(owner, terms(false)));
    }
    assert_eq!(list.first().map(|(arrival, _)| arrival), Some(3));
    let taken = list.take_all(|waiter| waiter.owner == one);
    assert!(taken.len() == 2 && list.len() == 1 && list.take(4).is_none());
    assert!(list.take(3).is_some_and(|waiter| waiter.owner == other) && list.is_empty());
}

#[test]
fn a_wait_is_told_of_after_a_second_ten_and_sixty_and_then_each_minute() {
    let at = |seconds| Timestamp::default().plus(Duration::from_secs(seconds));
    let mut list = WaitList::default();
    assert_eq!(list.slow_at(), Timestamp::NEVER);
    for arrival in [1, 2] {
        list.join(arrival, waiter(&Owner::new(), terms(arrival == 2)));
    }
    let told = (0..=200).filter(|second| {
        let slow = list.take_slow(at(*second));
        assert!(slow.iter().all(|wait| wait.waited == Duration::from_secs(*second)));
        assert!(slow.is_empty() || slow.len() == 2, "both waits are as long");
        !slow.is_empty()
    });
    assert_eq!(told.collect::<Vec<_>>(), [1, 10, 60, 120, 180]);
    assert_eq!(list.slow_at(), at(240));
    list.join(3, Waiter { slow_at: at(201), ..waiter(&Owner::new(), terms(false)) });
    assert_eq!(list.slow_at(), at(201), "it comes first");
    assert_eq!(list.take_slow(at(225)).len(), 1);
    assert!((1..=3).all(|arrival| list.take(arrival).is_some()));
    assert_eq!(list.slow_at(), Timestamp::NEVER);
}

#[test]
fn what_came_to_nothing_is_asked_for_again() {
    let mut list = WaitList::default();
    for arrival in [1, 2] {
        list.join(arrival, waiter(&Owner::new(), terms(arrival == 2)));
    }
    let wanted = |moved: Vec<(Seeker, Option<Wanted>)>| {
        let moved = moved.into_iter();
        moved.map(|(seeker, wanted)| (seeker, wanted.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(wanted(list.take_moved()), [(Seeker::Fair(2), true)]);
    list.again(Seeker::Fair(2));
    // The first of them is looked for at each look.
    list.again(Seeker::Ordinary);
    assert_eq!(wanted(list.take_moved()), [(Seeker::Fair(2), true)]);
    assert_eq!(wanted(list.take_moved()), []);
}

#[test]
fn a_request_asks_for_one_fair_waiter_or_for_all_others() {
    assert_eq!(Seeker::of(terms(true), 5), Seeker::Fair(5));
    assert_eq!(Seeker::of(terms(false), 5), Seeker::Ordinary);
}

#[test]
fn a_fair_waiter_has_a_request_of_its_own_and_the_others_share_one() {
    let owner = Owner::new();
    let mut list = WaitList::default();
    for (arrival, fair) in [(1, true), (2, false), (3, false), (4, true)] {
        list.join(arrival, waiter(&owner, terms(fair)));
    }
    let moved = |list: &mut WaitList| -> Vec<_> {
        list.take_moved().into_iter().map(|(seeker, wanted)| (seeker, wanted.is_some())).collect()
    };
    assert_eq!(moved(&mut list), [(Seeker::Fair(1), true), (Seeker::Fair(4), true)]);
    assert_eq!(moved(&mut list), []);
    assert_eq!(list.first().map(|(arrival, _)| arrival), Some(2));
    assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (4, 2, 2));
    assert!(list.of(Seeker::Fair(4)).is_some() && list.take(4).is_some());
    assert_eq!(moved(&mut list), [(Seeker::Fair(4), false)]);
    assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (3, 1, 2));
    assert!(list.take(2).is_some());
    assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (2, 1, 1));
    assert!(list.of(Seeker::Fair(4)).is_none() && list.of(Seeker::Ordinary).is_some());
}
