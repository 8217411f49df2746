use super::*;

const A: &str = "a:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30";
const B: &str = "b:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f31";
const C: &str = "c:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f32";
const D: &str = "d:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f33";

fn answer(holder: Option<&str>, seconds: Option<u64>, readers: &[&str]) -> LockStatus {
    LockStatus {
        name: "n".into(),
        holder: holder.map(Holder::new),
        hold_count: 1,
        remaining: seconds.map(Duration::from_secs),
        since: None,
        last_token: seconds,
        waiting_clients: seconds.unwrap_or(0) as u32,
        waiting: Vec::new(),
        readers: readers.iter().map(|reader| Holder::new(*reader)).collect(),
    }
}

fn of(answers: &[LockStatus]) -> LockStatus {
    LockStatus::of_majority(&"n".into(), answers.to_vec(), 2)
}

#[test]
fn a_majority_names_the_holder_for_as_long_as_a_majority_does() {
    let [short, middle, long] = [10, 20, 30].map(|seconds| answer(Some(A), Some(seconds), &[]));
    for answers in [[&short, &middle, &long], [&long, &short, &middle], [&middle, &long, &short]] {
        let status = of(&answers.map(Clone::clone));
        assert_eq!(status.holder, Some(Holder::new(A)));
        assert_eq!(status.remaining, Some(Duration::from_secs(20)));
        assert_eq!(
            (status.hold_count, status.last_token, status.waiting_clients),
            (1, Some(30), 30)
        );
    }
    let endless = answer(Some(A), None, &[]);
    let status = of(&[short.clone(), endless.clone(), middle.clone()]);
    assert_eq!(
        status.remaining,
        Some(Duration::from_secs(20)),
        "the longest after one without an end"
    );
    assert_eq!(of(&[short, endless.clone(), endless]).remaining, None);
}

#[test]
fn without_a_majority_it_is_free() {
    let two = [answer(Some(A), Some(10), &[]), answer(Some(B), Some(20), &[])];
    let status = of(&two);
    assert_eq!((status.holder, status.hold_count, status.remaining), (None, 0, None));
    assert_eq!((status.last_token, status.waiting_clients), (Some(20), 20));
    let foreign = ["0b7c:1", "1c8d:1"].map(|holder| answer(Some(holder), Some(10), &[]));
    assert!(of(&foreign).holder.is_some(), "Redisson has another name on each");
    let status = of(&[]);
    assert_eq!((status.holder, status.hold_count, status.waiting_clients), (None, 0, 0));
}

#[test]
fn those_read_whom_a_majority_lists() {
    let answers = [
        answer(Some(B), Some(10), &[B, C]),
        answer(Some(C), Some(20), &[C, A]),
        answer(Some(C), Some(30), &[C, A, D]),
    ];
    let status = of(&answers);
    assert_eq!(status.readers, [A, C].map(Holder::new));
    assert_eq!(status.holder, Some(Holder::new(A)), "the first of them");
    assert_eq!(status.remaining, Some(Duration::from_secs(20)), "for as long as two list it");
    let status = of(&answers[..2]);
    assert_eq!(status.readers, [Holder::new(C)]);
    assert_eq!(status.remaining, Some(Duration::from_secs(10)));
}

#[test]
fn it_is_settled_once_a_majority_agrees_also_about_each_reader() {
    let (a, b) = (answer(Some(A), Some(10), &[]), answer(Some(B), Some(10), &[]));
    for (answers, settled) in [
        (vec![], false),
        (vec![a.clone()], false),
        (vec![a.clone(), b.clone()], false),
        (vec![a.clone(), a.clone()], true),
        (vec![a.clone(), b, a], true),
    ] {
        assert_eq!(LockStatus::is_settled(&answers, 2), settled, "{answers:?}");
    }
    let (one, both) = (answer(Some(A), None, &[A]), answer(Some(A), None, &[A, B]));
    assert!(LockStatus::is_settled(&[one.clone(), one.clone()], 2));
    assert!(!LockStatus::is_settled(&[one.clone(), both.clone()], 2), "the third may list it");
    assert!(LockStatus::is_settled(&[one, both.clone(), both], 2));
}
