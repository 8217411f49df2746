//! `try`, `wait`, `inspect`, `watch`, `force`, `doctor`, and the texts for shells.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Server, code_of, eventually, kill};

fn json(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn try_takes_nothing() {
    let server = Server::start();
    assert_eq!(server.code(&["try", "a", "b"]), 0);
    assert!(!server.is_locked("a"));
    server.hold("b");
    let output = server.output(&["try", "a", "b"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("\"b\" is held by other:01234567"),
        "{output:?}"
    );
}

#[test]
fn wait_ends_when_the_lock_is_free() {
    let server = Server::start();
    server.hold("a");
    let begun = Instant::now();
    assert_eq!(server.code(&["wait", "-w", "0.4", "a"]), 75);
    assert!(begun.elapsed() >= Duration::from_millis(400));
    let mut wait = server.spawn(&["wait", "a"]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(wait.try_wait().expect("a child of ours").is_none());
    server.release("a");
    assert_eq!(code_of(&mut wait), 0);
    assert!(!server.is_locked("a"));
}

#[test]
fn wait_ends_when_all_of_several_locks_are_free() {
    let server = Server::start();
    server.hold("b");
    for names in [["a", "b"], ["b", "a"]] {
        assert_eq!(server.code(&["wait", "-w", "0.3", names[0], names[1]]), 75, "{names:?}");
    }
    let mut wait = server.spawn(&["wait", "a", "b"]);
    looked(&server, 1);
    server.release("b");
    assert_eq!(code_of(&mut wait), 0);
}

#[test]
fn inspect_says_who_holds_it_since_when_and_who_waits() {
    let server = Server::start();
    let mut holder = server.spawn(&[
        "--name",
        "billing-7",
        "run",
        "a",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; sleep 60",
    ]);
    server.wait_for_text("pid");
    let mut waiter = server.spawn(&["--name", "web-1", "run", "a", "--", "true"]);
    eventually("it waits", || {
        json(&server.output(&["--json", "inspect", "a"]))["locks"][0]["waiting_clients"] == 1
    });
    let output = server.output(&["inspect", "a"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "held by     billing-7:",
        "since       20",
        "expires in  ",
        "token       ",
        "waiting     1",
        "web-1 for ",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    let status = json(&server.output(&["--json", "inspect", "a", "b"]));
    assert_eq!(status["schema"], 1);
    assert_eq!(status["locks"][0]["name"], "a");
    assert!(status["locks"][1]["holder"].is_null());
    for child in [&mut holder, &mut waiter] {
        kill(child.id(), Signal::TERM);
        code_of(child);
    }
}

/// terraform cannot list its locks (#28710), nor show whose one is that somebody wants to force (#27033).
#[test]
fn list_shows_all_locks_and_their_holders_in_a_form_that_force_takes() {
    let server = Server::start();
    for name in ["orders:1", "orders:2", "other"] {
        server.hold(name);
    }
    let () = server.command("HSET", &["orders:3", "name", "no lock"]);
    let output = server.output(&["list", "orders:"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = ["LOCK", "KIND", "HOLDER", "COUNT", "SINCE", "TTL", "TOKEN", "WAITING", "WAITS-FOR"];
    assert_eq!(rows[0], head, "{text}");
    let names: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!(names, ["orders:1", "orders:2"], "{text}");
    assert_eq!((rows[1][1], rows[1][2], rows[1][7]), ("mutex", "other:01234567", "0"), "{text}");
    assert!(output.stderr.is_empty(), "no progress where nobody looks: {output:?}");
    assert_eq!(server.code(&["force", rows[1][0], "--holder", rows[1][2]]), 0);
    let listed = json(&server.output(&["--json", "list"]));
    assert_eq!((&listed["schema"], &listed["complete"]), (&1.into(), &true.into()));
    assert_eq!(listed["locks"].as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!(listed["locks"][0]["name"], "orders:2");
    assert_eq!(server.code(&["--redis", "redis://127.0.0.1:1", "list"]), 69);
}

/// A script would take what it has not seen for free.
#[test]
fn a_list_that_fails_is_not_complete_and_no_success() {
    let server = Server::start();
    server.hold("a");
    let () = server.command("ACL", &["SETUSER", "default", "-scan"]);
    let output = server.output(&["list"]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    let output = server.output(&["--json", "list"]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert_eq!(json(&output)["complete"], false, "{output:?}");
}

/// Hazelcast shows holders and no waiters (#14387).
#[test]
fn list_shows_who_is_waited_for() {
    let server = Server::start();
    server.hold("a");
    server.hold("quiet");
    let mut waiter = server.spawn(&["--name", "web-1", "run", "a", "--", "true"]);
    eventually("it waits", || {
        let listed = json(&server.output(&["--json", "list", "--contended"]));
        let locks = listed["locks"].as_array().expect("a list");
        assert!(locks.iter().all(|lock| lock["name"] == "a"), "{listed}");
        locks.len() == 1 && locks[0]["waiting"][0]["client"] == "web-1"
    });
    for (prefix, count) in [("a", 1), ("b", 0)] {
        let listed = json(&server.output(&["--json", "list", "--contended", prefix]));
        assert_eq!(listed["locks"].as_array().map(Vec::len), Some(count), "{listed}");
    }
    let first = json(&server.output(&["--json", "list", "--fast"]))["locks"][0].clone();
    assert_eq!((&first["name"], &first["waiting_clients"]), (&"a".into(), &1.into()));
    kill(waiter.id(), Signal::TERM);
    code_of(&mut waiter);
}

/// mc support top locks shows the oldest first, and its users wanted a capture that programs read.
#[test]
fn list_shows_first_what_has_been_held_for_longest() {
    let server = Server::start();
    let mut runs = Vec::new();
    for name in ["z", "y", "x"] {
        let script = format!("echo $$ > pid-{name}; exec sleep 60");
        runs.push(server.spawn(&["run", name, "--", "sh", "-c", &script]));
        server.wait_for_text(&format!("pid-{name}"));
    }
    let listed = json(&server.output(&["--json", "list"]));
    let names: Vec<&str> = listed["locks"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["z", "y", "x"]);
    assert_eq!(listed["suspected_deadlocks"].as_array().map(Vec::len), Some(0));
    for run in &mut runs {
        kill(run.id(), Signal::TERM);
        code_of(run);
    }
}

/// A script that takes a refused lock for one that it holds, as `redis-cli SET key value NX` invites to, which exits with 0.
#[test]
fn a_refusal_is_no_success_and_neither_is_a_server_that_is_away() {
    let server = Server::start();
    server.hold("a");
    assert_eq!(server.code(&["try", "a"]), 75);
    assert_eq!(server.code(&["run", "-n", "a", "--", "touch", "ran"]), 75);
    for command in [&["try", "a"][..], &["wait", "a"], &["inspect", "a"], &["list"]] {
        let away = [&["--redis", "redis://127.0.0.1:1"], command].concat();
        assert_eq!(server.code(&away), 69, "{command:?}");
    }
    assert!(!server.file("ran").exists());
}

#[test]
fn watch_prints_each_change() {
    let server = Server::start();
    let mut watch = server.spawn(&["watch", "a"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().ends_with(" a free"));
    server.hold("a");
    assert!(next().contains(" a held by other:01234567"));
    server.release("a");
    assert!(next().ends_with(" a free"));
    kill(watch.id(), Signal::INT);
    assert_eq!(code_of(&mut watch), 130);
}

#[test]
fn watch_tells_of_those_who_wait_and_of_each_reader() {
    let server = Server::start();
    server.hold("a");
    let lines = std::fs::File::create(server.file("lines")).expect("a file");
    let mut watch = server.leasehold(&["watch", "a", "rw"]);
    let mut watch = watch.stdout(lines).spawn().expect("the program runs");
    let says = |what: &str| eventually(what, || server.text("lines").trim_end().ends_with(what));
    says(" rw free");
    let mut waiter = server.spawn(&["run", "a", "--", "true"]);
    says(" a held by other:01234567, 1 waiting");
    kill(waiter.id(), Signal::TERM);
    code_of(&mut waiter);
    says(" a held by other:01234567");
    reads(&server, "rw", &reader(1));
    says(" rw held by other:11234567");
    reads(&server, "rw", &reader(2));
    says(" rw held by other:11234567 and 1 other reader");
    kill(watch.id(), Signal::INT);
    assert_eq!(code_of(&mut watch), 130);
}

#[test]
fn watch_ends_while_the_server_does_not_answer_and_when_nobody_reads() {
    let server = Server::start();
    let mut watch = server.spawn(&["watch", "a"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").ends_with(" a free"));
    server.signal(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_millis(400));
    kill(watch.id(), Signal::INT);
    assert_eq!(code_of(&mut watch), 130);
    server.signal(Signal::CONT);

    let mut unread = server.spawn(&["watch", "a"]);
    let mut lines = BufReader::new(unread.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").ends_with(" a free"));
    drop(lines);
    server.hold("a");
    assert_eq!(code_of(&mut unread), 141);
}

/// Stops the server in the middle of a round of `watch`: it has told who holds the locks, and not yet what the holder of this one,
/// which is the first, waits for.
fn stop_within_a_round(server: &Server, lock: &str) {
    let mut monitor = UnixStream::connect(server.file("socket")).expect("a connection");
    monitor.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    monitor.write_all(b"MONITOR\r\n").expect("it listens");
    let mut commands = BufReader::new(monitor).lines().map(|line| line.expect("a command"));
    for key in ["leasehold_token", "leasehold_wait"] {
        let key = format!("{key}:{{{lock}}}");
        assert!(commands.any(|command| command.contains(&key)), "{key}");
    }
    server.signal(Signal::STOP);
}

/// Whoever is not told of a note takes nobody for blocked.
#[test]
fn an_outage_within_a_round_is_no_change_for_watch_and_control_c_ends_it_at_once() {
    let server = Server::start();
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    // Each holder waits for the next lock, in a circle.
    for (name, next) in names.iter().zip(names.iter().cycle().skip(1)) {
        server.hold(name);
        let note = format!(
            "9999999999999 1 other:01234567-89ab-4def-8123-456789abcdef 2 3 7 0 0 1 #{next}"
        );
        let () = server.command("HSET", &[&format!("leasehold_wait:{{{name}}}"), "note", &note]);
    }
    let lines = std::fs::File::create(server.file("lines")).expect("a file");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    std::fs::write(server.file("settings"), "response_timeout = \"3s\"\n").expect("a file");
    let options = ["--settings", "settings", "watch"];
    let mut watch = server.leasehold(&[&options[..], &names[..], &["last"]].concat());
    let mut watch = watch.stdout(lines).spawn().expect("the program runs");
    let shows = |what: &str| eventually(what, || server.text("lines").contains(what));
    shows(" last free");
    let told = server.text("lines");
    let of = |text: &str, what: &str| text.matches(what).count();
    assert_eq!((of(&told, " held by "), of(&told, "a deadlock, ")), (20, 20), "{told}");

    stop_within_a_round(&server, "n0");
    // Longer than it waits for one answer.
    std::thread::sleep(Duration::from_millis(3500));
    server.signal(Signal::CONT);
    server.hold("last");
    shows(" last held by ");
    let later = server.text("lines");
    assert_eq!(of(&later, " held by "), 21, "{}", later.replacen(&told, "", 1));

    stop_within_a_round(&server, "n0");
    let began = Instant::now();
    kill(watch.id(), Signal::INT);
    assert_eq!(code_of(&mut watch), 130);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}, a second for each lock");
    assert_eq!(server.text("lines"), later);
}

/// Waits until so many commands have looked at their lock: each asks by a script, and then rests.
fn looked(server: &Server, commands: usize) {
    eventually("they have looked", || {
        server.command::<String>("CLIENT", &["LIST"]).matches(" cmd=evalsha ").count() == commands
    });
}

#[test]
fn wait_and_watch_go_on_when_the_server_answers_again() {
    let server = Server::start();
    server.hold("a");
    let mut watch = server.spawn(&["watch", "a"]);
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().contains(" a held by other:01234567"));
    let mut wait = server.spawn(&["wait", "a"]);
    let mut told = BufReader::new(wait.stderr.take().expect("a pipe")).lines();
    looked(&server, 2);
    server.signal(Signal::STOP);
    let line = told.next().expect("a line").expect("text");
    assert!(line.contains("no answer") && line.ends_with("looking again"), "{line}");
    server.signal(Signal::CONT);
    server.release("a");
    assert_eq!(code_of(&mut wait), 0);
    assert!(told.next().is_none(), "told once");
    assert!(next().ends_with(" a free"));
    kill(watch.id(), Signal::INT);
    assert_eq!(code_of(&mut watch), 130);

    server.hold("a");
    let mut wait = server.spawn(&["wait", "a"]);
    looked(&server, 1);
    server.signal(Signal::STOP);
    assert_eq!(code_of(&mut wait), 69, "nobody answers for ten seconds");
    server.signal(Signal::CONT);
}

#[test]
fn a_read_write_lock_is_looked_at_and_freed_too() {
    let server = Server::start();
    let holder = "other:01234567-89ab-cdef-0123-456789abcdef";
    let writer = format!("{holder}:write");
    let () = server.command("HSET", &["rw", "mode", "write", &writer, "1"]);
    let () = server.command("PEXPIRE", &["rw", "60000"]);
    let listed = server.output(&["list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains(" write  other:01234567 "));
    let shown = server.output(&["inspect", "rw"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("other:01234567"));
    assert_eq!(server.code(&["try", "rw"]), 75);
    assert_eq!(server.code(&["wait", "-w", "0.1", "rw"]), 75);
    assert_eq!(server.code(&["force", "rw", "--holder", "other:99999999"]), 75);
    let prefixed = server.output(&["--name-prefix", "shop:", "force", "shop:rw", "--any", "--yes"]);
    let said = String::from_utf8_lossy(&prefixed.stderr);
    assert!(said.contains("\"shop:shop:rw\" is free"), "it says what it looked at: {said}");
    assert_eq!(server.code(&["force", "rw", "--holder", "other:01234567"]), 0);
    assert_eq!(server.code(&["try", "rw"]), 0);
}

fn reader(digit: u8) -> String {
    format!("other:{digit}1234567-89ab-cdef-0123-456789abcdef")
}

/// Takes a read-write lock as another client that reads, beside those who read already.
fn reads(server: &Server, name: &str, reader: &str) {
    let end = format!("{{{name}}}:{reader}:rwlock_timeout:1");
    let () = server.command("SET", &[&end, "1", "PX", "60000"]);
    let () = server.command("HSET", &[name, "mode", "read", reader, "1"]);
    let () = server.command("PEXPIRE", &[name, "60000"]);
}

#[test]
fn any_of_several_readers_can_be_freed() {
    let server = Server::start();
    let readers = [1, 2].map(reader);
    readers.iter().for_each(|reader| reads(&server, "rw", reader));
    let listed = server.output(&["list"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains(" read  other:11234567 and 1 more "), "{text}");
    assert_eq!(server.code(&["force", "rw", "--holder", "other:31234567"]), 75);
    assert_eq!(server.code(&["force", "rw", "--holder", "other:21234567"]), 0);
    let left: Vec<String> = server.command("HKEYS", &["rw"]);
    assert!(left.contains(&readers[0]) && !left.contains(&readers[1]), "{left:?}");
}

/// All readers have one token.
#[test]
fn the_part_of_one_reader_is_ended_and_the_others_go_on_with_their_token() {
    let server = Server::start();
    [1, 2, 3].map(reader).iter().for_each(|reader| reads(&server, "rw", reader));
    let () = server.command("SET", &["leasehold_token:{rw}", "17", "PX", "60000"]);
    let output = server.output(&["force", "rw", "--holder", "other:21234567"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let part =
        "ended other:21234567's part of \"rw\", which 2 other readers still hold: it is told";
    assert!(said.starts_with(part) && !said.contains("token"), "{said}");
    let ended = json(&server.output(&["--json", "force", "rw", "--holder", "other:31234567"]));
    assert_eq!(ended["holders"], serde_json::json!(["other:31234567"]), "{ended}");
    assert!(ended["stale_token"].is_null(), "{ended}");

    reads(&server, "rw", &reader(2));
    let freed = json(&server.output(&["--json", "force", "rw", "--any", "--yes"]));
    let both = serde_json::json!(["other:11234567", "other:21234567"]);
    assert_eq!((&freed["holders"], &freed["stale_token"]), (&both, &17.into()), "{freed}");
    assert_eq!(server.code(&["try", "rw"]), 0);
}

#[test]
fn a_holder_of_redisson_learns_of_it_only_when_it_unlocks() {
    let server = Server::start();
    let holder = "6b0f4c1e-0000-4000-8000-000000000000:57";
    let () = server.command("HSET", &["a", holder, "1"]);
    let () = server.command("PEXPIRE", &["a", "60000"]);
    let output = server.output(&["force", "a", "--holder", holder]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("only when it calls unlock()"), "{said}");
}

/// What is no lock that they know may be a semaphore in use.
#[test]
fn nobody_is_told_to_delete_what_may_be_in_use() {
    let server = Server::start();
    let () = server.command("SET", &["permits", "3"]);
    for arguments in [
        &["inspect", "permits"][..],
        &["try", "permits"],
        &["wait", "permits"],
        &["watch", "permits"],
        &["force", "permits", "--any", "--yes"],
        &["run", "permits", "--", "true"],
    ] {
        let output = server.output(arguments);
        assert_eq!(output.status.code(), Some(65), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("leasehold list") && !said.contains("delete"), "{said}");
    }
}

/// Whoever reads a part of the output would take it for the whole.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_no_success() {
    let server = Server::start();
    server.hold("a");
    for arguments in [
        &["list"][..],
        &["--json", "list"],
        &["inspect", "a"],
        &["--json", "try", "a"],
        &["watch", "a"],
        &["completions", "bash"],
        &["force", "a", "--any", "--yes"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let output = server.leasehold(arguments).stdout(full).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(70), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot write the output: "), "{arguments:?}: {said}");
    }
}

#[test]
fn force_wants_the_holder_that_it_showed() {
    let server = Server::start();
    assert_eq!(server.code(&["force", "a", "--any", "--yes"]), 1, "it is free");
    server.hold("a");
    for (arguments, code) in [
        (&["force", "a"][..], 64),
        (&["force", "a", "--any"], 64),
        (&["force", "a", "--holder", "other:01234567", "--yes"], 64),
        (&["force", "a", "--holder", "other"], 75),
        (&["force", "a", "--holder", "other:99999999"], 75),
    ] {
        assert_eq!(server.code(arguments), code, "{arguments:?}");
        assert!(server.is_locked("a"));
    }
    for (given, told) in [
        ("other", "is held by other:01234567: name it in full, --holder other:01234567\n"),
        ("other:99999999", "is held by other:01234567 by now, not freed\n"),
    ] {
        let output = server.output(&["force", "a", "--holder", given]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.ends_with(told), "{said}");
    }
    let output = server.output(&["force", "a", "--holder", "other:01234567"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("told at its next renewal"));
    assert!(!server.is_locked("a"));
    server.hold("a");
    assert_eq!(server.code(&["force", "a", "--any", "--yes"]), 0);
    assert!(!server.is_locked("a"));
    server.hold("a");
    let freed = json(&server.output(&["--json", "force", "a", "--any", "--yes"]));
    assert_eq!(freed["schema"], 1);
    assert_eq!((&freed["name"], &freed["holder"]), (&"a".into(), &"other:01234567".into()));
}

/// The UUID of such a lease has the version 8, and its counter says since when it is there.
#[test]
fn force_spares_a_holder_whose_lease_may_have_passed_to_another_since_it_was_shown() {
    let server = Server::start();
    let field = "other:01234567-89ab-8def-8123-456789abcdef";
    let () = server.command("HSET", &["a", field, "1"]);
    let () = server.command("PEXPIRE", &["a", "60000"]);
    // The first is ahead of the clock, as a counter may be: it cannot grow old while a slow machine looks.
    for (age, code) in [(-60, 75), (60, 0)] {
        let (seconds, _): (i64, i64) = server.command("TIME", &[]);
        let token = ((seconds - age) * 1_000_000).to_string();
        let () = server.command("SET", &["leasehold_token:{a}", &token, "PX", "60000"]);
        let forced = server.output(&["force", "a", "--holder", "other:01234567"]);
        assert_eq!(forced.status.code(), Some(code), "{forced:?}");
        assert_eq!(server.is_locked("a"), code != 0, "{forced:?}");
    }
}

/// Each command may stand with each option that all have, and with names that no client could have.
#[test]
fn the_name_of_a_lock_is_not_taken_for_that_of_the_client() {
    let server = Server::start();
    server.hold("orders: 1");
    assert_eq!(server.code(&["force", "orders: 1", "--any", "--yes"]), 0);
    assert!(!server.is_locked("orders: 1"));
}

#[test]
fn doctor_finds_what_is_to_be_mended() {
    let server = Server::start();
    let report = json(&server.output(&["--json", "doctor", "--pairs", "10"]));
    let nodes = report["nodes"].as_array().expect("a list");
    assert!(nodes.len() == 1 && nodes[0]["state"] == "up", "{report}");
    let findings = report["findings"].as_array().expect("a list");
    let found = findings.iter().find(|it| it["kind"] == "not_persistent").expect("it is told");
    assert_eq!(found["node"], nodes[0]["address"]);
    assert!(found["text"].as_str().is_some_and(|text| text.contains("appendonly")), "{found}");
    assert!(report["broken"].as_array().is_some_and(Vec::is_empty), "{report}");
    assert!(
        report["pair_p50"].as_f64() > Some(0.0) && report["hand_over"].as_f64() < Some(1.0),
        "{report}"
    );
    assert_eq!(server.code(&["doctor", "--pairs", "10"]), 1);

    for (name, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let () = server.command("CONFIG", &["SET", name, value]);
    }
    let output = server.output(&["doctor", "--pairs", "10"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("all in order\n"));
    let left: Vec<String> = server.command("KEYS", &["leasehold:doctor:*"]);
    assert!(left.is_empty(), "{left:?}");

    let output = server.output(&["--redis", "redis://127.0.0.1:1", "--json", "doctor"]);
    assert_eq!(output.status.code(), Some(2));
    let broken = &json(&output)["broken"][0];
    assert_eq!(
        (&broken["kind"], &broken["code"]),
        (&"no_connection".into(), &69.into()),
        "{broken}"
    );
}

/// Each name of a lock has a token counter, which remains for a while.
#[test]
fn doctor_leaves_no_more_on_the_server_each_time() {
    let server = Server::start();
    for _ in 0..2 {
        assert_eq!(server.code(&["doctor", "--pairs", "2"]), 1);
    }
    let left: Vec<String> = server.command("KEYS", &["*doctor*"]);
    assert!(left.len() <= 1, "{left:?}");
    for key in left {
        let ttl: i64 = server.command("PTTL", &[&key]);
        assert!(ttl != -1 && ttl <= 120_000, "{key}: {ttl}");
    }
}

/// Otherwise the next one on this host would wait for it.
#[test]
fn a_doctor_that_is_interrupted_keeps_no_lock() {
    let server = Server::start();
    let mut doctor = server.spawn(&["doctor", "--pairs", "100000"]);
    let counters = || server.command::<Vec<String>>("KEYS", &["leasehold_token:*doctor*"]).len();
    eventually("it has had its lock", || counters() == 1);
    kill(doctor.id(), Signal::INT);
    assert_eq!(code_of(&mut doctor), 130);
    let left: Vec<String> = server.command("KEYS", &["leasehold:doctor:*"]);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn doctor_needs_servers_and_files_that_it_can_read_as_all_commands_do() {
    let server = Server::start();
    for (options, code, told) in [
        (&["--settings", "missing"][..], 78, "--settings missing: "),
        (&["--redis-file", "missing"], 78, "--redis-file missing: "),
        (&[], 64, "which servers?"),
    ] {
        let mut doctor = server.leasehold(&[options, &["doctor"]].concat());
        let output = doctor.env_remove("REDIS_URL").output().expect("the program runs");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
}

/// Whoever waits asks again after two to four seconds.
#[test]
fn doctor_finds_that_messages_are_lost() {
    let server = Server::start();
    let rules = ["SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels", "&leasehold_probe"];
    let () = server.command("ACL", &rules);
    let url = server.url().replace("unix://", "redis+unix://") + "?user=u&pass=p";
    let output = server.output(&["--redis", &url, "--json", "doctor", "--pairs", "2"]);
    let report = json(&output);
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|it| it["kind"] == "messages_lost"), "{report}");
    assert_eq!(output.status.code(), Some(1), "{report}");
}

#[test]
fn doctor_finds_that_the_right_is_missing_to_note_waits() {
    let server = Server::start();
    let rules =
        ["u", "on", ">p", "~leasehold:doctor:*", "~leasehold_token:*", "~leasehold_queue:*"];
    let () = server.command("ACL", &[&["SETUSER"], &rules[..], &["&*", "+@all"]].concat());
    let url = server.url().replace("unix://", "redis+unix://") + "?user=u&pass=p";
    let report = || {
        let output = server.output(&["--redis", &url, "--json", "doctor", "--pairs", "2"]);
        json(&output)["findings"].to_string()
    };
    assert!(report().contains("leasehold_wait"), "{}", report());
    let () = server.command("ACL", &["SETUSER", "u", "~leasehold_wait:*"]);
    assert!(!report().contains("leasehold_wait"), "{}", report());
}

#[test]
fn shells_and_man_are_served() {
    let server = Server::start();
    for shell in ["bash", "zsh", "fish"] {
        let output = server.output(&["completions", shell]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("no-wait"), "{shell}");
    }
    assert_eq!(server.code(&["man", "."]), 0);
    assert!(server.text("leasehold-run.1").contains("on\\-lost"));
    let bash = server.output(&["completions", "bash"]);
    let bash = String::from_utf8_lossy(&bash.stdout).into_owned();
    for command in
        ["try", "wait", "list", "inspect", "watch", "force", "doctor", "export", "dev-server"]
    {
        assert!(server.file(&format!("leasehold-{command}.1")).exists(), "{command}");
        assert!(bash.contains(&format!("leasehold,{command})")), "{command}");
    }
}

#[test]
fn completions_that_nobody_reads_to_the_end_are_no_fault() {
    let server = Server::start();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut completions = server.spawn(&["completions", shell]);
        drop(completions.stdout.take());
        assert_eq!(code_of(&mut completions), 0, "{shell}");
    }
}
