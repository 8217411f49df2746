use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Timestamp {
    Timestamp::default().plus(SECOND * seconds)
}

fn answer(sent: u32, answered: u32, run: u64) -> Answer {
    let (sent_at, answered_at) = (at(sent), at(answered));
    Answer { reply: Reply::Nil, sent_at, answered_at, source: Source { member: 1, run } }
}

fn seen(left: u64, ends_in: Option<u32>) -> Seen {
    Seen { done: false, left, ends_in: ends_in.map(|seconds| SECOND * seconds) }
}

/// What a handle that saw the latch shut until second 100 says to its absence.
fn gone(sent: u32, answered: u32, run: u64) -> Option<LossReason> {
    let mut memory = Memory::default();
    assert_eq!(memory.take_in(&answer(0, 1, 7), &seen(2, Some(100))), None);
    let first = memory.take_in(&answer(sent, answered, run), &seen(0, None));
    let again = memory.take_in(&answer(sent, answered, run), &seen(0, None));
    assert_eq!(first, again, "a loss stays, and what is open is open");
    first
}

#[test]
fn a_latch_that_is_gone_is_open_only_if_it_was_not_its_end_nor_another_server() {
    assert_eq!(gone(50, 60, 7), None);
    assert_eq!(gone(97, 98, 7), None);
    assert_eq!(gone(98, 99, 7), Some(LossReason::Ended), "within the drift");
    assert_eq!(gone(50, 120, 7), Some(LossReason::Ended), "it may have ended before it was read");
    assert_eq!(gone(50, 60, 8), Some(LossReason::Failover));
    let mut endless = Memory::default();
    assert_eq!(endless.take_in(&answer(0, 1, 7), &seen(1, None)), None);
    assert_eq!(endless.take_in(&answer(9000, 9001, 7), &seen(0, None)), None);
}

#[test]
fn who_never_saw_it_shut_finds_it_open_wherever_it_is() {
    let mut memory = Memory::default();
    for run in [7, 8] {
        assert_eq!(memory.take_in(&answer(5, 6, run), &seen(0, None)), None);
    }
}

#[test]
fn what_opens_it_ends_a_loss_and_so_does_a_latch_that_is_shut_again() {
    for again in [Seen { done: true, ..seen(0, None) }, seen(3, None)] {
        let mut memory = Memory::default();
        memory.take_in(&answer(0, 1, 7), &seen(2, None));
        let lost = memory.take_in(&answer(2, 3, 8), &seen(0, None));
        assert_eq!(lost, Some(LossReason::Failover));
        assert_eq!(memory.take_in(&answer(4, 5, 8), &again), None);
        assert_eq!(memory.take_in(&answer(6, 7, 8), &seen(0, None)), None);
    }
}

#[test]
fn an_answer_that_comes_late_does_not_shut_it_again() {
    let mut memory = Memory::default();
    memory.take_in(&answer(0, 1, 7), &seen(1, None));
    memory.take_in(&answer(4, 5, 7), &seen(0, None));
    assert_eq!(memory.take_in(&answer(2, 6, 7), &seen(1, None)), None);
    assert_eq!(memory.take_in(&answer(7, 8, 8), &seen(0, None)), None, "it was seen open");
}

#[test]
fn a_reply_is_read_as_what_it_says() {
    let reply = |numbers: [i64; 3]| Reply::List(numbers.map(Reply::Number).into());
    let read = |numbers| Seen::read(&reply(numbers));
    assert_eq!(read([0, 2, 5000]), Some(seen(2, Some(5))));
    assert_eq!(read([1, 2, -1]), Some(Seen { done: true, ..seen(2, None) }));
    assert_eq!(read([0, 0, -2]), Some(seen(0, None)));
    assert_eq!(read([0, -1, -2]), None);
    assert_eq!(Seen::read(&Reply::Number(1)), None);
}

#[test]
fn a_late_answer_that_it_is_open_does_not_make_it_forget_that_it_was_seen_shut() {
    let mut memory = Memory::default();
    assert_eq!(memory.take_in(&answer(10, 11, 7), &seen(2, None)), None);
    // Asked before it was set.
    assert_eq!(memory.take_in(&answer(5, 12, 7), &seen(0, None)), None);
    let lost = memory.take_in(&answer(20, 21, 8), &seen(0, None));
    assert_eq!(lost, Some(LossReason::Failover));
}
