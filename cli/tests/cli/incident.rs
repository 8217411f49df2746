//! A day on which locks are stuck, with nothing but the command line: found, named, freed. `docs/operating.md` says what to type.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::exporting::Export;
use crate::support::{Server, code_of, eventually, is_alive, kill};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn listed(server: &Server, arguments: &[&str]) -> Value {
    let output = server.output(&[&["--json", "list"], arguments].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Waits until all of this is shown at once. Under load, a note may be over before it is made again.
fn shows(server: &Server, arguments: &[&str], parts: &[&str]) {
    eventually(&format!("{arguments:?} shows {parts:?}"), || {
        let shown = text(&server.output(arguments));
        parts.iter().all(|part| shown.contains(part))
    });
}

/// The words of the row of a lock.
fn row(table: &str, lock: &str) -> Vec<String> {
    let rows = table.lines().map(|line| line.split_whitespace().map(str::to_owned));
    let mut rows = rows.map(|words| words.collect::<Vec<_>>());
    rows.find(|words| words.first().is_some_and(|it| it == lock)).unwrap_or_else(|| {
        panic!("{lock} is missing: {table}");
    })
}

/// Waits until `export` counts so many circles that somebody has noted, and so many others.
fn exports(server: &Server, noted: u32, others: u32) {
    let export = Export::start(server, &["--every", "0.2"]);
    for (is_noted, number) in [(true, noted), (false, others)] {
        export.metric(&format!("leasehold_suspected_deadlocks{{noted=\"{is_noted}\"}} {number}"));
    }
}

fn holder(server: &Server, lock: &str) -> String {
    row(&text(&server.output(&["list"])), lock)[2].clone()
}

/// One process hangs with the lock, and is renewed for ever; fifty wait behind it.
#[test]
fn fifty_wait_behind_one_that_hangs_until_it_is_found_and_named_and_freed() {
    let server = Server::start();
    for quiet in ["night:1", "night:2"] {
        server.hold(quiet);
    }
    let hangs = "echo $$ > pid; exec sleep 600";
    let mut stuck = server.spawn(&[
        "--name",
        "billing-7",
        "run",
        "--ttl",
        "3",
        "orders",
        "--",
        "sh",
        "-c",
        hangs,
    ]);
    let pid = server.wait_for_text("pid");
    let mut waiters: Vec<Child> = (0..50)
        .map(|number| {
            let name = format!("web-{number}");
            server.spawn(&["--name", &name, "run", "orders", "--", "true"])
        })
        .collect();
    eventually("all wait", || {
        listed(&server, &["--contended"])["locks"][0]["waiting_clients"] == 50
    });

    // Found: it stands at the top.
    let table = text(&server.output(&["list"]));
    let first = table.lines().nth(1).expect("a row").to_owned();
    assert!(first.starts_with("orders "), "{table}");
    let found = row(&table, "orders");
    assert_eq!(found[7], "50", "{table}");
    // Named: who, since when, and who waits.
    let holder = &found[2];
    assert!(holder.starts_with("billing-7:"), "{table}");
    let inspected = text(&server.output(&["inspect", "orders"]));
    for part in
        [&format!("held by     {holder}"), "since       20", "waiting     50", "web-49 for "]
    {
        assert!(inspected.contains(part), "{part:?} is missing: {inspected}");
    }
    // Freed: from that holder, and from no other.
    assert_eq!(server.code(&["force", "orders", "--holder", "billing-8:00000000"]), 75);
    let freed = server.output(&["force", "orders", "--holder", holder]);
    assert_eq!(freed.status.code(), Some(0), "{freed:?}");
    for waiter in &mut waiters {
        assert_eq!(code_of(waiter), 0);
    }
    assert_eq!(code_of(&mut stuck), 79, "it is told");
    assert!(!is_alive(&pid), "and what hung has ended");
    assert_eq!(server.code(&["try", "orders"]), 0);
}

/// Each of two holds what the other wants.
#[test]
fn two_that_wait_for_each_other_are_found_and_named_and_one_is_freed() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let nested = |name: &'static str, first: &'static str, second: &'static str| {
        let script = format!(
            "echo x > has-{first}; until test -s has-a -a -s has-b; do sleep 0.02; done; exec {me} run {second} -- true"
        );
        server.spawn(&["--name", name, "run", "--ttl", "3", first, "--", "sh", "-c", &script])
    };
    let mut one = nested("app-1", "a", "b");
    let mut other = nested("app-2", "b", "a");
    eventually("each waits for the other", || {
        listed(&server, &[])["suspected_deadlocks"].as_array().is_some_and(|all| all.len() == 1)
    });
    let table = text(&server.output(&["list"]));
    let told = "this looks like a deadlock: app-1 holds \"a\" and waits for \"b\"; app-2 holds \"b\" and waits for \"a\"";
    assert!(table.lines().last().is_some_and(|line| line == told), "{table}");
    for (lock, client, waits_for) in [("a", "app-1:", "b"), ("b", "app-2:", "a")] {
        let found = row(&table, lock);
        assert!(found[2].starts_with(client) && found[8] == waits_for, "{table}");
    }
    let drawn = text(&server.output(&["list", "--dot"]));
    for line in [
        "\"lock a\" [shape=box, label=\"a\"];",
        "\"lock a\" -> \"client app-1\";",
        "\"client app-1\" -> \"lock b\" [style=dashed];",
        "\"client app-2\" -> \"lock a\" [style=dashed];",
    ] {
        assert!(drawn.contains(line), "{line} is missing: {drawn}");
    }
    exports(&server, 0, 1);
    assert_eq!(server.code(&["force", "a", "--holder", &holder(&server, "a")]), 0);
    assert_eq!(code_of(&mut other), 0, "it gets what it waited for");
    assert_eq!(code_of(&mut one), 79, "it is told, and its command has ended");
    assert_eq!(server.code(&["try", "a", "b"]), 0);
}

/// What a process does that moves something from one account to another: it takes the first, and waits for the second.
///
/// By itself it finds both free. With others it is told which server and which locks, and waits until the second is held.
#[tokio::test]
async fn a_transfer_takes_one_lock_and_then_the_other() {
    let told = std::env::var(TRANSFER).ok();
    let own = told.is_none().then(Server::start);
    let (url, first, second) = match (&told, &own) {
        (Some(told), _) => {
            let mut words = told.split(' ');
            let mut word = || words.next().expect("three words").to_owned();
            (word(), word(), word())
        }
        (None, own) => (own.as_ref().expect("a server").url(), "a".to_owned(), "b".to_owned()),
    };
    let builder = leasehold::Client::builder().nodes([url]).ttl(Duration::from_secs(3));
    let client = builder.connect().await.expect("connected");
    let _from = client.mutex(&first).lock().await.expect("free");
    while told.is_some() && !client.mutex(&second).is_locked().await.expect("an answer") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let to = client.mutex(&second).lock().await.expect("granted in the end");
    assert!(to.is_held() && client.mutex(&second).is_locked().await.expect("an answer"));
    to.unlock().await.expect("held");
}

const TRANSFER: &str = "LEASEHOLD_TEST_TRANSFER";

/// Each has noted what it waits for, so the circle is named with its owners, whatever the clients are called.
#[test]
fn what_two_programs_have_noted_is_found_and_named_and_one_is_freed() {
    let server = Server::start();
    let transfer = |first: &str, second: &str| {
        Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "incident::a_transfer_takes_one_lock_and_then_the_other"])
            .env(TRANSFER, format!("{} {first} {second}", server.url()))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program runs")
    };
    let mut both = [transfer("a", "b"), transfer("b", "a")];
    let told = [
        "a deadlock, as those who wait have noted it: #",
        " holds \"a\" and waits for \"b\"; #",
        " holds \"b\" and waits for \"a\"\n",
    ];
    let details = ["  waits for   b (#", "\nb is held by #", "\n  waits for   a\n"];
    shows(&server, &["inspect", "a"], &[&details[..], &told].concat());
    shows(&server, &["list"], &told);
    shows(&server, &["--json", "list"], &["\"blocked\":[{", "\"waits_for\":[\"b\"]"]);
    let line = [" a held by ", ", which waits for b, "];
    let circle = ["\"suspected_deadlocks\":[[{"];
    for (options, parts) in [
        (&["watch", "a"][..], &[&line[..], &told].concat()[..]),
        (&["--json", "watch", "a"], &circle),
    ] {
        let lines = std::fs::File::create(server.file("lines")).expect("a file");
        let mut watch = server.leasehold(options);
        let mut watch = watch.stdout(lines).spawn().expect("the program runs");
        eventually(&format!("{options:?} tells of it"), || {
            let lines = server.text("lines");
            parts.iter().all(|part| lines.contains(part))
        });
        kill(watch.id(), Signal::INT);
        code_of(&mut watch);
    }
    exports(&server, 1, 0);
    assert_eq!(server.code(&["force", "a", "--holder", &holder(&server, "a")]), 0);
    for transfer in &mut both {
        assert_eq!(code_of(transfer), 0, "it gets what it waited for");
    }
    assert_eq!(server.code(&["try", "a", "b"]), 0);
    assert!(!text(&server.output(&["inspect", "a"])).contains("deadlock"));
}

/// Two processes may have one name, and a client may hold one lock and wait for another in two tasks: no circle, no alarm.
#[test]
fn who_only_waits_is_no_deadlock() {
    let server = Server::start();
    server.hold("a");
    let mut waiter = server.spawn(&["--name", "other", "run", "b", "a", "--", "true"]);
    eventually("it waits", || listed(&server, &["--contended"])["locks"][0]["name"] == "a");
    let table = text(&server.output(&["list"]));
    assert!(!table.contains("deadlock"), "{table}");
    kill(waiter.id(), Signal::TERM);
    code_of(&mut waiter);
}
