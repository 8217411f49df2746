use super::*;

#[test]
fn what_a_message_granted_is_handed_on_100_ms_after_its_earliest_time_at_the_latest() {
    let at = |ms| Timestamp::default().plus(Duration::from_millis(ms));
    for (received_at, from) in [(1_030, 1_030), (1_100, 1_100), (9_000, 1_100)] {
        assert_eq!(Grant::passes_from(at(1_000), at(received_at)), at(from));
    }
}
