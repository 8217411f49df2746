//! A writer of a read-write lock that becomes a reader.

use leasehold::{Error, Owner};

use super::{MS, connect, exists, server};

#[test]
fn a_writer_becomes_a_reader() {
    let server = server();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, theirs) = (client.rw_lock("n"), other.rw_lock("n"));
    let writing = lock.write().expect("free");
    let token = writing.token();
    assert!(!writing.unchanged_since(None));
    assert!(theirs.try_read().expect("an answer").is_none());
    let reading = writing.downgrade().expect("held");
    assert!(reading.is_held() && reading.token() >= token);
    let beside = theirs.try_read_for(2000 * MS).expect("an answer").expect("readers share it");
    assert!(theirs.owned_by(&Owner::new()).try_write().expect("an answer").is_none());
    drop(reading);
    assert!(beside.is_held() && exists(&server, "n"));
    let seen = beside.version();
    drop(beside);
    assert!(!exists(&server, "n"));
    let writing = theirs.write().expect("free");
    assert!(writing.unchanged_since(seen));
    drop(writing);
    assert!(!lock.write().expect("free").unchanged_since(seen), "the other wrote since");
}

#[test]
fn a_writer_that_was_lost_becomes_no_reader() {
    let server = server();
    let (client, other) = (connect(&server), connect(&server));
    let writing = client.rw_lock("n").write().expect("free");
    assert!(other.rw_lock("n").force_unlock().expect("an answer"));
    let error = writing.downgrade().expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!exists(&server, "n"));
}
