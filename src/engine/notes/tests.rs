use super::*;

fn note(owner: &str, wants: &str) -> Note {
    Note {
        certainty: Certainty::Certain,
        fails_from: Some(Certainty::Certain),
        token: 7,
        reads: false,
        owner: owner.into(),
        wants_to_read: false,
        wants: wants.into(),
    }
}

fn read(id: &str, beat: u64, wants: &str) -> Read {
    Read { id: id.into(), beat, lease: "l:1".into(), note: note(id, wants) }
}

/// One pass over some locks: each with the id of a note, its beat, and what it waits for.
fn pass(readings: &mut Readings, notes: &[(&str, &str, u64, &str)]) {
    readings.begin();
    for (lock, id, beat, wants) in notes {
        readings.take_in(&(*lock).into(), None, vec![read(id, *beat, wants)]);
    }
    readings.end();
}

fn circle(readings: &Readings, wants: &str, own: &str) -> Option<(String, bool)> {
    let (wants, own): (Arc<str>, [Arc<str>; 1]) = (wants.into(), [own.into()]);
    let seeker = Seeker { wants: &wants, wants_to_read: false, own: &own, process: "p" };
    let circle = readings.circle(&seeker)?;
    let parts = circle.parts.iter().map(|part| format!("{} of {}", part.lock, part.read.id));
    Some((parts.collect::<Vec<_>>().join(", "), circle.is_proved))
}

const CIRCLE: &str = "b of q1, a of p1";

#[test]
fn a_note_is_read_as_it_was_written_whatever_the_names_are() {
    for (owner, wants) in [("x y#7", "a b"), ("", "ä {n}"), ("ö 1 2", " ")] {
        for fails_from in [None, Some(Certainty::Passing), Some(Certainty::Likely)] {
            let note = Note { fails_from, reads: true, ..note(owner, wants) };
            let text = format!("1700000000000 3 c:1 {}", note.text());
            let read = Read::parse("p1", &text).expect("a note");
            assert_eq!(read, Read { id: "p1".into(), beat: 3, lease: "c:1".into(), note });
        }
    }
    for text in ["", "1 2 c:1", "1 2 c:1 2 2 7 0 0 9 x", "1 x c:1 2 2 7 0 0 1 xa"] {
        assert_eq!(Read::parse("p1", text), None, "{text:?}");
    }
}

#[test]
fn a_circle_is_proved_by_two_beats_behind_a_reading_behind_the_pass_that_saw_all_of_it() {
    let mut readings = Readings::default();
    for ((one, other), expected) in [
        ((1, 5), Some(false)),
        // This is the reading from which the beats count.
        ((3, 7), Some(false)),
        ((4, 8), Some(false)),
        ((5, 8), Some(false)),
        ((5, 9), Some(true)),
    ] {
        pass(&mut readings, &[("a", "p1", one, "b"), ("b", "q1", other, "a")]);
        assert_eq!(
            circle(&readings, "b", "p1"),
            expected.map(|is_proved| (CIRCLE.to_owned(), is_proved))
        );
    }
}

#[test]
fn a_note_that_came_later_or_was_away_counts_from_then_on() {
    let mut readings = Readings::default();
    let both = |one, other| [("a", "p1", one, "b"), ("b", "q1", other, "a")];
    for beat in 1..=5 {
        pass(&mut readings, &both(beat, beat)[..1]);
        assert_eq!(circle(&readings, "b", "p1"), None);
    }
    for (beat, expected) in [(6, false), (7, false), (8, false), (9, true)] {
        pass(&mut readings, &both(beat, beat));
        assert_eq!(circle(&readings, "b", "p1"), Some((CIRCLE.to_owned(), expected)), "{beat}");
    }
    pass(&mut readings, &both(10, 10)[..1]);
    for (beat, expected) in [(11, false), (12, false), (13, false), (14, true)] {
        pass(&mut readings, &both(beat, beat));
        assert_eq!(circle(&readings, "b", "p1"), Some((CIRCLE.to_owned(), expected)), "{beat}");
    }
}

/// Whoever is only warned of a circle may stand in it for days.
#[test]
fn a_wait_that_goes_on_takes_up_no_more_and_more_memory_and_proves_as_much() {
    let mut readings = Readings::default();
    for beat in 1..1000 {
        pass(&mut readings, &[("a", "p1", beat, "b")]);
        assert!(readings.latest["a"].notes[0].beats.len() <= MOST_BEATS, "{beat}");
    }
    for beat in 1000..1020 {
        pass(&mut readings, &[("a", "p1", beat, "b"), ("b", "q1", beat, "a")]);
        let expected = Some((CIRCLE.to_owned(), beat >= 1003));
        assert_eq!(circle(&readings, "b", "p1"), expected, "{beat}");
    }
}

#[test]
fn what_another_server_says_is_not_a_later_state() {
    let mut readings = Readings::default();
    let mut proved = Vec::new();
    for (beat, run) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)] {
        readings.begin();
        for (lock, id, wants) in [("a", "p1", "b"), ("b", "q1", "a")] {
            let source = Some(Source { member: 0, run });
            readings.take_in(&lock.into(), source, vec![read(id, beat, wants)]);
        }
        readings.end();
        proved.push(circle(&readings, "b", "p1").is_some_and(|(_, is_proved)| is_proved));
    }
    assert_eq!(proved, [false, false, false, false, false, true]);
}

#[test]
fn a_circle_inside_the_process_is_not_looked_for_and_one_beside_it_is() {
    let mut readings = Readings::default();
    pass(&mut readings, &[("a", "p1", 1, "b"), ("b", "p2", 1, "a")]);
    assert_eq!(circle(&readings, "b", "p1"), None);
    readings.begin();
    readings.take_in(&"a".into(), None, vec![read("p1", 1, "b")]);
    let beside = vec![read("p2", 1, "a"), read("q1", 1, "c")];
    readings.take_in(&"b".into(), None, beside);
    readings.take_in(&"c".into(), None, vec![read("p2", 1, "a")]);
    readings.end();
    let found = circle(&readings, "b", "p1").map(|(circle, _)| circle);
    assert_eq!(found.as_deref(), Some("b of q1, c of p2, a of p1"));
}

#[test]
fn readers_are_in_no_readers_way() {
    let mut readings = Readings::default();
    let reader = |id, wants| {
        let mut read = read(id, 1, wants);
        read.note.reads = true;
        read
    };
    readings.begin();
    readings.take_in(&"a".into(), None, vec![read("p1", 1, "r")]);
    readings.take_in(&"r".into(), None, vec![reader("q1", "x"), reader("q2", "a")]);
    readings.end();
    let (wants, own): (Arc<str>, [Arc<str>; 1]) = ("r".into(), ["p1".into()]);
    for (wants_to_read, expected) in [(false, Some(2)), (true, None)] {
        let seeker = Seeker { wants: &wants, wants_to_read, own: &own, process: "p" };
        assert_eq!(readings.circle(&seeker).map(|it| it.parts.len()), expected);
    }
}

/// Who waits in a circle that is certain is told of that one, whatever others there are.
#[test]
fn of_several_circles_the_most_certain_one_is_found() {
    let reader = |id, certainty| {
        let mut read = read(id, 1, "a");
        (read.note.certainty, read.note.reads) = (certainty, true);
        read
    };
    let mut readers = [reader("q1", Certainty::Passing), reader("q2", Certainty::Certain)];
    for _ in 0..2 {
        let mut readings = Readings::default();
        readings.begin();
        readings.take_in(&"a".into(), None, vec![read("p1", 1, "r")]);
        readings.take_in(&"r".into(), None, readers.to_vec());
        readings.end();
        let found = circle(&readings, "r", "p1").map(|(circle, _)| circle);
        assert_eq!(found.as_deref(), Some("r of q2, a of p1"));
        readers.reverse();
    }
}

#[test]
fn all_agree_on_who_gives_way() {
    let part = |id: &str, token, fails_from| {
        let note = Note { token, fails_from, ..note(id, "x") };
        Part { lock: id.into(), read: Read { note, ..read(id, 1, "x") } }
    };
    let (fails, never) = (Some(Certainty::Likely), None);
    for (parts, expected) in [
        ([part("p1", 7, fails), part("q1", 9, fails)], "q1"),
        ([part("p1", 7, fails), part("q1", 9, never)], "p1"),
        ([part("p1", 7, never), part("q1", 9, never)], "q1"),
        ([part("p1", 7, fails), part("q1", 7, fails)], "q1"),
    ] {
        for parts in [parts.to_vec(), parts.iter().rev().cloned().collect()] {
            let circle = Circle { parts, is_proved: true };
            assert_eq!(circle.gives_way().map(|read| &*read.id), Some(expected));
        }
    }
}

#[test]
fn a_circle_without_an_end_elsewhere_is_not_run_through_twice() {
    let mut readings = Readings::default();
    pass(&mut readings, &[("b", "q1", 1, "c"), ("c", "q2", 1, "b"), ("a", "p1", 1, "b")]);
    assert_eq!(circle(&readings, "b", "p1"), None, "it waits behind a circle");
    assert_eq!(readings.unread(), Vec::<Arc<str>>::new());
    pass(&mut readings, &[("b", "q1", 1, "c")]);
    assert_eq!(readings.unread(), [Arc::from("c")]);
}
