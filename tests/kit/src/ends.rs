//! What the library writes must end: at the end of each test, each key of ours on each of its servers has an end.

use std::time::Duration;

use redis::{Client, Connection, ConnectionLike, Pipeline, RedisResult, Value, from_redis_value};

/// A key without an end.
struct Key {
    name: String,
    kind: String,
    /// The fields of a hash.
    fields: Vec<String>,
}

impl Key {
    /// What stays by design.
    fn stays(&self) -> bool {
        // The mark belongs to the run of the server, and says since when clients have known that.
        self.name == "leasehold_mark"
            // So does the list of the masters, until somebody changes it.
            || self.name == "leasehold_masters"
            || self.name.starts_with("leasehold_masters:")
            || self.name.starts_with("leasehold_mark:")
            // Redisson's counters have no end, so that both count on.
            || self.name.starts_with("redisson_lock_token:")
            // Items stay until they are done.
            || ["lent", "items", "dead"].iter().any(|kind| self.name.starts_with(&format!("leasehold_{kind}:")))
            // A semaphore has its number until somebody removes it, and each permit of the set an end of its own.
            || self.is_of_permits()
    }

    fn is_of_permits(&self) -> bool {
        self.kind == "zset" && self.name.ends_with(":timeout")
    }

    /// Tests write keys of their own, too: those of others, and some that are no locks.
    fn is_ours(&self) -> bool {
        self.name.starts_with("leasehold_")
            || self.name.starts_with("redisson_lock_token:")
            || self.name.contains(":rwlock_timeout:")
            || self.is_of_permits()
            || self.fields.iter().any(|field| is_of_a_lease(field))
    }
}

/// Whether this is the field of a lease in its lock: `client:uuid`, or that of a writer.
fn is_of_a_lease(field: &str) -> bool {
    let id = field.strip_suffix(":write").unwrap_or(field);
    let Some((_, uuid)) = id.split_once(':') else { return false };
    let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The keys of ours on this server that have no end and should have one. A server that cannot be asked has none.
pub(crate) fn without_end(url: &str) -> Vec<String> {
    let mut found = Vec::new();
    // What was found before the server failed counts.
    let _ = walk(url, &mut found);
    found
}

fn walk(url: &str, found: &mut Vec<String>) -> RedisResult<()> {
    let mut connection = Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    // A replica in a cluster answers for its keys only then; all others refuse this.
    let _: RedisResult<()> = redis::cmd("READONLY").query(&mut connection);
    for database in databases(&mut connection) {
        if database != 0 {
            redis::cmd("SELECT").arg(database).query::<()>(&mut connection)?;
        }
        let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection)?;
        let ends = of_each(&mut connection, "PTTL", names.iter())?;
        let endless = names.iter().zip(ends).filter(|(_, end)| *end == Value::Int(-1));
        let endless: Vec<&Vec<u8>> = endless.map(|(name, _)| name).collect();
        let kinds = of_each(&mut connection, "TYPE", endless.iter().copied())?;
        for (name, kind) in endless.into_iter().zip(kinds) {
            let kind: String = from_redis_value(kind).unwrap_or_default();
            let fields = match kind.as_str() {
                "hash" => redis::cmd("HKEYS").arg(name).query(&mut connection).unwrap_or_default(),
                _ => Vec::new(),
            };
            let name = String::from_utf8_lossy(name).into_owned();
            let key = Key { name, kind, fields };
            if key.is_ours() && !key.stays() {
                found.push(format!("{} ({} in database {database})", key.name, key.kind));
            }
        }
    }
    Ok(())
}

fn databases(connection: &mut Connection) -> Vec<i64> {
    let info: RedisResult<String> = redis::cmd("INFO").arg("keyspace").query(connection);
    let Ok(info) = info else { return vec![0] };
    let numbers = info.lines().filter_map(|line| line.strip_prefix("db")?.split_once(':'));
    numbers.filter_map(|(number, _)| number.parse().ok()).collect()
}

/// The answers to one command for each of these keys: an error, too, is an answer.
fn of_each<'a>(
    connection: &mut Connection,
    verb: &str,
    names: impl Iterator<Item = &'a Vec<u8>>,
) -> RedisResult<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    for name in names {
        pipeline.cmd(verb).arg(name);
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    connection.req_packed_commands(&pipeline.get_packed_pipeline(), 0, pipeline.len())
}

/// A server that is well answers at once; one that hangs is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Server, eventually};

    /// What the end of the test says of this server.
    fn end_of(server: Server) -> Option<String> {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)));
        ended.err().map(|panic| *panic.downcast::<String>().expect("a text"))
    }

    #[tokio::test]
    async fn a_key_of_ours_without_an_end_fails_its_test_and_is_named() {
        let lease = "someone:01234567-89ab-4def-8123-456789abcdef";
        let writer = format!("{lease}:write");
        let end = format!("{{n}}:{lease}:rwlock_timeout:1");
        let keys: [(&str, &[&str]); 6] = [
            ("n", &["HSET", "n", lease, "1"]),
            ("w", &["HSET", "w", "mode", "write", &writer, "1"]),
            (&end, &["SET", &end, "1"]),
            ("leasehold_token:{n}", &["SET", "leasehold_token:{n}", "1"]),
            ("leasehold_permit_queue:{n}", &["ZADD", "leasehold_permit_queue:{n}", "1", "e"]),
            ("leasehold_leader:{n}", &["SET", "leasehold_leader:{n}", "1"]),
        ];
        for (key, command) in keys {
            let server = Server::start().await;
            server.command(command).await;
            let said = end_of(server).expect("the test fails");
            let test = "a_key_of_ours_without_an_end_fails_its_test_and_is_named";
            assert!(said.contains(test) && said.contains(key), "{said}");
        }
    }

    #[tokio::test]
    async fn a_key_without_an_end_is_found_wherever_it_is() {
        let set = ["SET", "leasehold_queue:{n}", "1"];
        let locked = Server::with(&["--requirepass", "secret"]).await;
        locked.command(&set).await;
        let stopped = Server::start().await;
        stopped.command(&set).await;
        stopped.pause();
        let elsewhere = Server::start().await;
        let raw =
            redis::Client::open(format!("{}/3", elsewhere.url())).and_then(|c| c.get_connection());
        redis::cmd("SET").arg(&set[1..]).query::<()>(&mut raw.expect("a login")).expect("set");
        let alone = Server::with(&["--cluster-enabled", "yes"]).await;
        let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
        let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
        alone.command(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat()).await;
        eventually(Duration::from_secs(15), "it takes writes", async || {
            alone.try_command(&set).await.is_ok()
        })
        .await;
        for (what, server) in
            [("locked", locked), ("stopped", stopped), ("elsewhere", elsewhere), ("alone", alone)]
        {
            assert!(
                end_of(server).is_some_and(|said| said.contains("leasehold_queue:{n}")),
                "{what}"
            );
        }
    }

    #[tokio::test]
    async fn what_stays_by_design_or_is_of_others_fails_no_test() {
        let server = Server::start().await;
        for command in [
            &["SET", "leasehold_mark:{tag}", "1"][..],
            &["SET", "redisson_lock_token:{n}", "1"],
            &["SET", "permits", "1"],
            &["ZADD", "{permits}:timeout", "1", "a:b"],
            &["HSET", "java", "01234567-89ab-4def-8123-456789abcdef:31", "1"],
            &["SET", "leasehold_token:{n}", "1", "PX", "60000"],
        ] {
            server.command(command).await;
        }
        assert_eq!(end_of(server), None);
    }

    #[tokio::test]
    async fn a_server_that_is_gone_or_refuses_all_fails_no_test() {
        let gone = Server::start().await;
        gone.kill();
        assert_eq!(end_of(gone), None);
        let died = Server::start().await;
        died.try_command(&["SHUTDOWN", "NOSAVE"]).await.expect_err("it ends");
        assert_eq!(end_of(died), None);
        let refuses = Server::with(&["--rename-command", "KEYS", ""]).await;
        refuses.command(&["SET", "leasehold_token:{n}", "1"]).await;
        assert_eq!(end_of(refuses), None);
    }

    #[tokio::test]
    async fn a_test_that_fails_already_fails_for_its_own_reason() {
        let server = Server::start().await;
        server.command(&["SET", "leasehold_token:{n}", "1"]).await;
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _server = server;
            panic!("its own reason");
        }));
        let reason = *ended.expect_err("it fails").downcast::<&str>().expect("a text");
        assert_eq!(reason, "its own reason");
    }
}
