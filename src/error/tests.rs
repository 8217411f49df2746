use super::*;

#[test]
fn a_timeout_names_the_holder_and_its_time() {
    let error = Error::Timeout {
        lock: "orders:42".into(),
        holder: Some(Holder::new("billing-7:0123")),
        owner: None,
        remaining: Some(Duration::from_secs(12)),
        waited: Duration::from_nanos(5_012_345_678),
        waiting: [Waiter::new("web-1", 0, 4_000_000)].into(),
    };
    assert_eq!(
        error.to_string(),
        "timed out after 5.01s waiting for \"orders:42\": held by billing-7:0123; it expires in 12s unless renewed; \
         waiting: web-1 for 4s"
    );
}

#[test]
fn a_timeout_without_a_holder_names_none() {
    let text = |remaining| {
        let error = Error::Timeout {
            lock: "jobs".into(),
            holder: None,
            owner: None,
            remaining,
            waited: Duration::from_secs(1),
            waiting: Arc::default(),
        };
        assert!(error.holder().is_none() && error.is_timeout());
        error.to_string()
    };
    assert_eq!(
        text(None),
        "timed out after 1s waiting for \"jobs\": too few permits are free, and none is known to be held"
    );
    assert_eq!(
        text(Some(Duration::from_secs(12))),
        "timed out after 1s waiting for \"jobs\": too few permits are free, and it is not known who has the \
         others; one ends in 12s unless renewed"
    );
}

/// Futures, waiters and results have room for an error.
#[cfg(target_pointer_width = "64")]
#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 104, "{} bytes", size_of::<Error>());
}

#[test]
fn a_deadlock_shows_its_whole_circle() {
    let part = |owner: &str, holds: &str, waits_for: &str| Blocked {
        owner: Owner::named(owner),
        client: "web-1".into(),
        holds: holds.into(),
        token: Some(7),
        waits_for: waits_for.into(),
    };
    let cycle: Vec<Blocked> = vec![part("x", "a", "b"), part("y", "b", "c"), part("z", "c", "a")];
    let error = Error::Deadlock { lock: "b".into(), cycle: cycle.clone().into() };
    assert_eq!(
        error.to_string(),
        format!(
            "deadlock: lock \"b\" is held by {} of web-1, which waits for lock \"c\", which is held by {} of web-1, \
             which waits for lock \"a\", which is held by the caller: release \"a\", and begin again",
            cycle[1].owner, cycle[2].owner
        )
    );
    assert!(!error.is_retryable(), "it would end like this one");
}

#[test]
fn what_a_server_wrote_is_escaped() {
    let error = Error::Denied {
        lock: Some("n".into()),
        what: "get\n".into(),
        message: "\u{1b}[31m".into(),
    };
    assert_eq!(
        error.to_string(),
        r#"the server denies get\n for "n": \u{1b}[31m: grant that with ACL SETUSER"#
    );
    let error = Error::Denied { lock: None, what: "the login".into(), message: "no".into() };
    assert_eq!(
        error.to_string(),
        "the server denies the login: no: check the user and the password"
    );
    let fault = Fault::Denied { what: "get\n".into(), message: "\u{1b}[31m".into() };
    let failures = [NodeFailure::new(&"a:1".into(), fault)].into();
    let text = Error::Unavailable { lock: None, failures }.to_string();
    assert_eq!(text, r"no usable answer from the servers: a:1: get\n is denied: \u{1b}[31m");
}

#[test]
fn a_server_of_the_wrong_kind_does_not_become_another_by_waiting() {
    let wrong = || Fault::WrongServer("it does not speak TLS".into());
    let away = || Fault::Down("connection refused".into());
    for (faults, is_retryable) in [
        (vec![wrong()], false),
        (vec![wrong(), wrong()], false),
        (vec![wrong(), away()], true),
        (vec![away()], true),
    ] {
        let failures = faults.into_iter().map(|fault| NodeFailure::new(&"a:1".into(), fault));
        let error = Error::Unavailable { lock: None, failures: failures.collect() };
        assert_eq!(error.is_retryable(), is_retryable, "{error}");
    }
}
