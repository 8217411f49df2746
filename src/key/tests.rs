use super::*;

#[test]
fn keys_of_a_lock_share_its_slot() {
    assert_eq!(&*token_key("n", false), "leasehold_token:{n}");
    assert_eq!(&*token_key("n", true), "redisson_lock_token:{n}");
    assert_eq!(&*channel("n"), "redisson_lock__channel:{n}");
    assert_eq!(&*channel("a:{b}:c"), "redisson_lock__channel:a:{b}:c");
    assert!(channel("n").starts_with(ALL_CHANNELS.trim_end_matches('*')));
    assert_eq!(&*queue_key("n"), "leasehold_queue:{n}");
    assert_eq!(&*queue_key("a:{b}:c"), "leasehold_queue::a:{b}:c");
    assert_eq!(&*leader_key("n"), "leasehold_leader:{n}");
    assert_eq!(&*leader_key("{n}"), "leasehold_leader::{n}");
    assert_eq!(&*notes_key("n"), "leasehold_wait:{n}");
    assert_eq!(&*notes_key("{n}"), "leasehold_wait::{n}");
    assert_eq!(&*leader_channel("{n}"), "leasehold_leader__channel:{n}");
    assert_ne!(queue_key("n"), queue_key("{n}"), "no two locks share a queue");
    assert_eq!(&*permit_queue_key("n"), "leasehold_permit_queue:{n}");
    assert_eq!(&*permits_key("n"), "{n}:timeout");
    assert_eq!(&*permits_key("a:{b}:c"), "a:{b}:c:timeout");
    assert_eq!(&*permit_channel("n"), "redisson_sc:{n}");
    assert_eq!(&*masters_key(""), "leasehold_masters");
    assert_eq!(&*masters_key("shop:"), "leasehold_masters:{shop:}");
    let items = |name: &str| item_keys(&name.into()).map(|key| key.to_string());
    let of_n = ["n", "leasehold_lent:{n}", "leasehold_item_queue:{n}", "leasehold_items:{n}"];
    assert_eq!(items("n")[..4], of_n);
    assert_eq!(items("a:{b}")[4], "leasehold_dead::a:{b}");
    assert_eq!(&*latch_channel("n"), "redisson_countdownlatch__channel__{n}");
    assert_eq!(&*latch_channel("{a}b"), "redisson_countdownlatch__channel__{{a}b}");
}

#[test]
fn a_mailbox_is_that_of_one_client_object() {
    let one = mailbox("billing-7", "0000000000000abc");
    assert_eq!(&*one, "leasehold_mailbox:billing-7:0000000000000abc");
    assert_ne!(one, mailbox("billing-7", "0000000000000abd"));
}

#[test]
fn names_that_cannot_be_locks_are_refused() {
    let too_long = "x".repeat(4097);
    let derived = [
        "leasehold_token:{n}",
        "redisson_lock_token:{n}",
        "leasehold_queue:{n}",
        "leasehold_next:{n}",
        "leasehold_wait:{n}",
        "leasehold_permit_queue:{n}",
        "leasehold_leader:{n}",
        "leasehold_mark",
        "leasehold_mark:{n}",
        "leasehold_masters",
        "leasehold_masters:{n}",
        "leasehold_rw_queue:{n}",
        "leasehold_lent:{n}",
        "leasehold_items:{n}",
        "leasehold_dead:{n}",
        "leasehold_item_queue:{n}",
        "leasehold_signal:{n}",
        "leasehold_signal_group::a{n}",
        "leasehold_synced:{n}",
        "leasehold_queue",
        "leasehold_of_a_later_version:{n}",
    ];
    for name in ["", &too_long].into_iter().chain(derived) {
        assert!(lock_name_problem(name).is_some(), "{name:?} was accepted");
    }
    for name in ["n", "leasehold", "leasehold:n", "redisson_lock_token", &too_long[1..], "ä\0\r\n"]
    {
        assert!(lock_name_problem(name).is_none(), "{name:?} was refused");
    }
}

#[test]
fn a_prefix_is_short_and_has_no_braces() {
    let longest = "x".repeat(256);
    for prefix in ["", "billing:", &longest] {
        assert_eq!(name_prefix_problem(prefix), None, "{prefix:?}");
    }
    for prefix in ["{billing}", "a{", "a}", &format!("{longest}x")] {
        assert!(name_prefix_problem(prefix).is_some(), "{prefix:?} was accepted");
    }
}

#[test]
fn the_default_client_name_is_a_valid_one() {
    let name = default_client_name();
    assert_eq!(client_name_problem(&name), None);
    assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
    assert_eq!(*name, format!("{}-{}", as_client_name(&host_name()), std::process::id()));
    #[cfg(unix)]
    assert_eq!(host_name(), rustix::system::uname().nodename().to_string_lossy());
    assert_eq!(as_client_name("a.b_C-1 ä"), "a.b_C-1--");
    assert_eq!(as_client_name(&"x".repeat(70)), "x".repeat(48));
    assert_eq!(as_client_name(""), "client");
}

#[test]
fn names_that_cannot_be_clients_are_refused() {
    let longest = "x".repeat(64);
    for name in ["a", "aZ0._-", &longest] {
        assert_eq!(client_name_problem(name), None, "{name:?}");
        assert_eq!(masters_name_problem(name), None, "{name:?}");
    }
    for name in ["", "a b", "a:b", "ä", "a\n", &format!("{longest}x")] {
        assert!(client_name_problem(name).is_some(), "{name:?} was accepted");
        assert!(masters_name_problem(name).is_some(), "{name:?} was accepted");
    }
}
