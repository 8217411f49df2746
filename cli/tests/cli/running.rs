//! `leasehold run`.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, code_of, eventually, is_alive, kill};

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = Server::start();
    for code in [0, 1, 2, 75, 255] {
        let script = format!("exit {code}");
        assert_eq!(server.code(&["run", "a", "--", "sh", "-c", &script]), code);
    }
    assert_eq!(server.code(&["run", "a", "--", "sh", "-c", "kill -USR1 $$"]), 128 + 10);
    assert!(!server.is_locked("a"), "it is released at the end");
}

#[test]
fn the_command_runs_under_the_lock_and_knows_it() {
    let server = Server::start();
    let script = "echo $LEASEHOLD_LOCK $LEASEHOLD_TTL_MS; test $LEASEHOLD_TOKEN -gt 0 && cat";
    let mut child = server
        .leasehold(&["run", "--ttl", "12", "a", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    eventually("the lock is taken", || server.is_locked("a"));
    use std::io::Write;
    child.stdin.take().expect("a pipe").write_all(b"typed").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "a 12000\ntyped",
        "standard input and output are the command's"
    );
}

#[test]
fn who_finds_the_lock_busy_runs_nothing_and_says_who_holds_it() {
    let server = Server::start();
    server.hold("a");
    for arguments in [&["-n"][..], &["-w", "0"], &["-w", "0.2"], &["--timeout", "200ms"]] {
        let all = [&["run"], arguments, &["a", "--", "touch", "ran"]].concat();
        let output = server.output(&all);
        assert_eq!(output.status.code(), Some(75), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("other:01234567") && !said.contains("89ab"), "{said}");
        assert!(!server.file("ran").exists());
    }
    assert_eq!(server.code(&["run", "-n", "-E", "42", "a", "--", "true"]), 42);
}

#[test]
fn a_code_that_does_not_fit_is_refused_and_not_cut() {
    let server = Server::start();
    for bad in ["256", "-1", "x"] {
        assert_eq!(server.code(&["run", "-E", bad, "a", "--", "true"]), 64, "{bad}");
    }
}

#[test]
fn bad_use_is_an_error_at_once() {
    let server = Server::start();
    for (arguments, code) in [
        (&["run", "a"][..], 64),
        (&["run", "--", "true"], 64),
        (&["run", "", "--", "true"], 64),
        (&["run", "-n", "-w", "1", "a", "--", "true"], 64),
        (&["run", "-w", "soon", "a", "--", "true"], 64),
        (&["run", "--on-lost", "contineu", "a", "--", "true"], 64),
        (&["run", "--on-lost", "kill", "--on-lost-run", "true", "a", "--", "true"], 64),
        (&["run", "--ttl", "1ms", "a", "--", "true"], 78),
        (&["--redis", "http://x", "run", "a", "--", "true"], 78),
        (&["--redis-file", "missing", "run", "a", "--", "true"], 78),
        (&["--settings", "missing", "run", "a", "--", "true"], 78),
        (&["frobnicate"], 64),
    ] {
        let output = server.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let mut nowhere = server.leasehold(&["run", "a", "--", "true"]);
    assert_eq!(nowhere.env_remove("REDIS_URL").status().expect("it runs").code(), Some(64));
    assert_eq!(server.code(&["--redis", "redis://127.0.0.1:1", "run", "a", "--", "true"]), 69);
}

#[test]
fn what_is_no_mutex_has_an_exit_code_of_its_own() {
    let server = Server::start();
    let () = server.command("SET", &["text", "no lock"]);
    let () = server.command("HSET", &["rw", "mode", "write", "other:1:write", "1"]);
    for name in ["text", "rw"] {
        assert_eq!(server.code(&["run", name, "--", "touch", "ran"]), 65, "{name}");
    }
    assert_eq!(server.code(&["try", "text"]), 65);
    assert!(!server.file("ran").exists());
}

#[test]
fn a_command_that_cannot_run_is_found_out_before_anything_is_locked() {
    let server = Server::start();
    server.hold("a");
    assert_eq!(server.code(&["run", "a", "--", "no-such-command"]), 127);
    assert_eq!(server.code(&["run", "a", "--", "./no/such/command"]), 127);
    std::fs::write(server.file("text"), "no program").expect("a file");
    assert_eq!(server.code(&["run", "a", "--", "./text"]), 126);
}

/// Root may execute what anybody may, so it tries that as another user.
#[test]
fn a_command_that_only_others_may_run_is_found_out_before_anything_is_locked() {
    let server = Server::start();
    server.hold("a");
    let make = "cp \"$0\" leasehold; printf '#!/bin/sh\\n' > script; chmod 755 . leasehold; chmod 610 script";
    let mut shell = Command::new("sh");
    shell.args(["-c", make, env!("CARGO_BIN_EXE_leasehold")]).current_dir(&server.directory);
    assert!(shell.status().expect("a shell").success());
    let mut run = Command::new(server.file("leasehold"));
    run.args(["run", "-n", "a", "--", "./script"]).env("REDIS_URL", server.url());
    if rustix::process::geteuid().is_root() {
        run.uid(65534).gid(65534);
    }
    let code = run.current_dir(&server.directory).status().expect("the program runs").code();
    assert_eq!(code, Some(126));
}

/// That is found out by the process that is to become the command.
#[test]
fn a_command_that_the_system_cannot_run_is_told_as_all_else() {
    let server = Server::start();
    // By a shell: a program that somebody has open for writing cannot run for another reason.
    let make = "printf '#!/no/such/interpreter\\n' > script; chmod +x script";
    let mut shell = Command::new("sh");
    shell.args(["-c", make]).current_dir(&server.directory);
    assert!(shell.status().expect("a shell").success());
    let output = server.output(&["run", "a", "--", "./script"]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    let told =
        "./script: its interpreter (the first line of a script, or the loader) was not found";
    assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    let output = server.output(&["--json", "run", "a", "--", "./script"]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    let events = events(&output);
    let failed = events.iter().find(|event| event["event"] == "failed").expect("an event");
    assert_eq!((&failed["code"], &failed["text"]), (&126.into(), &told.into()), "{failed}");
}

/// They are in the environment of the command.
#[test]
fn names_that_are_too_long_for_the_system_are_found_out_before_the_command_runs() {
    let server = Server::start();
    let names: Vec<String> = (0..70).map(|number| format!("{number:04000}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = server.output(&[&["run"], &names[..], &["--", "touch", "ran"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("touch: Argument list too long"), "{said}");
    assert!(!server.file("ran").exists() && !server.is_locked(names[0]));
}

/// As by a shell, where whoever starts it has cleared the environment.
#[test]
fn a_command_is_found_though_there_is_no_path() {
    let server = Server::start();
    let mut run = server.leasehold(&["run", "a", "--", "true"]);
    assert_eq!(run.env_remove("PATH").status().expect("it runs").code(), Some(0));
}

#[test]
fn a_lost_lock_is_told_even_if_the_command_ended_well() {
    let server = Server::start();
    let script = "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let mut run = server.spawn_shell(&["--ttl", "1"], script);
    server.wait_for_text("pid");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    let mut said = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(said.contains("lost lock \"a\"") && said.contains("told to end"), "{said}");
    assert!(said.contains(", and somebody else may soon hold the lock\n"), "{said}");
}

/// A `run` that holds `a`, and has told that it has lost `b`. The command goes on as long as the file `pid` is there, so before the
/// release nothing but the loss itself is a reason to say anything.
fn without_the_second_of_two_locks() -> (Server, Child) {
    let server = Server::start();
    let script = "echo $$ > pid; while test -e pid; do sleep 0.02; done";
    let options = ["run", "--ttl", "3", "--on-lost", "continue", "a", "b"];
    let said = std::fs::File::create(server.file("said")).expect("a file");
    let mut run = server.leasehold(&[&options[..], &["--", "sh", "-c", script]].concat());
    let run = run.stderr(said).spawn().expect("the program runs");
    server.wait_for_text("pid");
    server.release("b");
    eventually("it is told", || server.text("said").contains("lost lock \"b\""));
    (server, run)
}

#[test]
fn the_loss_of_the_second_of_two_locks_is_told_while_the_command_runs() {
    let (server, mut run) = without_the_second_of_two_locks();
    std::fs::remove_file(server.file("pid")).expect("a file");
    assert_eq!(code_of(&mut run), 79);
}

#[test]
fn each_lock_that_is_lost_is_told_once() {
    let (server, mut run) = without_the_second_of_two_locks();
    server.release("a");
    std::fs::remove_file(server.file("pid")).expect("a file");
    assert_eq!(code_of(&mut run), 79);
    let said = server.text("said");
    assert!(said.contains("lost lock \"a\" while the command ran: the server no longer"), "{said}");
    assert_eq!(said.matches("\"b\"").count(), 1, "{said}");
}

#[test]
fn a_loss_that_only_the_release_finds_is_told_too() {
    let server = Server::start();
    let options = ["--ttl", "60", "--lost-exit-code", "43"];
    let mut run = server.spawn_shell(&options, "echo $$ > pid; sleep 0.3");
    server.wait_for_text("pid");
    server.release("a");
    assert_eq!(code_of(&mut run), 43);
}

#[test]
fn grandchildren_end_with_the_lock() {
    let server = Server::start();
    let script = "sleep 60 & echo $! > grandchild; wait";
    let mut run = server.spawn_shell(&["--ttl", "1"], script);
    let grandchild = server.wait_for_text("grandchild");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    eventually("the grandchild ends", || !is_alive(&grandchild));
}

/// Also if the command itself ends at once.
#[test]
fn grandchildren_that_ignore_the_request_to_end_are_killed_after_the_grace() {
    let server = Server::start();
    let ignores = "trap '' TERM; echo $$ > grandchild; while :; do sleep 0.05; done";
    let script = format!("sh -c \"{}\" & wait", ignores.replace('$', "\\$"));
    let mut run = server.spawn_shell(&["--ttl", "1", "--grace", "0.3"], &script);
    let grandchild = server.wait_for_text("grandchild");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    eventually("the grandchild is killed", || !is_alive(&grandchild));
}

/// The command would begin without it.
#[test]
fn a_lock_that_is_lost_while_the_next_is_waited_for_is_taken_again() {
    let server = Server::start();
    server.hold("b");
    let mut run = server.spawn(&["run", "--ttl", "1", "a", "b", "--", "touch", "ran"]);
    eventually("it has the first", || server.is_locked("a"));
    server.hold("a");
    // It may believe that it has the first until the lease ends.
    std::thread::sleep(Duration::from_millis(1100));
    server.release("b");
    std::thread::sleep(Duration::from_secs(2));
    assert!(!server.file("ran").exists(), "another has the first");
    server.release("a");
    assert_eq!(code_of(&mut run), 0);
    assert!(server.file("ran").exists());
}

/// The server answers nothing while the program ends, which waits for it.
#[test]
fn what_it_had_while_it_waited_for_the_others_is_free_when_its_time_is_over() {
    let server = Server::start();
    server.hold("b");
    let mut run = server.spawn(&["run", "-w", "1.5", "a", "b", "--", "touch", "ran"]);
    eventually("it has the first", || server.is_locked("a"));
    std::thread::sleep(Duration::from_millis(900));
    let () = server.command("CLIENT", &["PAUSE", "1000", "ALL"]);
    assert_eq!(code_of(&mut run), 75);
    assert!(!server.is_locked("a"));
    assert!(!server.file("ran").exists());
}

/// The lock would end soon, and does not.
#[test]
fn a_lock_that_nearly_ends_is_not_lost() {
    let server = Server::start();
    let script = "echo $$ > pid; sleep 11";
    let mut run = server.spawn_shell(&["--ttl", "12", "--on-lost", "continue"], script);
    server.wait_for_text("pid");
    let left: u64 = server.command("PTTL", &["a"]);
    server.signal(Signal::STOP);
    // A third of it is left.
    std::thread::sleep(Duration::from_millis(left.saturating_sub(3500)));
    server.signal(Signal::CONT);
    assert_eq!(code_of(&mut run), 0);
    let mut said = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(!said.contains("lost"), "{said}");
}

/// As by an upgrade of this program.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_is_replaced_while_it_waits_runs_the_command() {
    let server = Server::start();
    server.hold("a");
    let (program, newer) = (server.file("leasehold"), server.file("newer"));
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).expect("a copy");
    std::fs::write(&newer, "another program").expect("a file");
    let mut run = Command::new(&program)
        .args(["run", "a", "--", "true"])
        .env("REDIS_URL", server.url())
        .spawn()
        .expect("the program runs");
    eventually("it waits", || server.command::<u32>("ZCARD", &["leasehold_queue:{a}"]) == 1);
    std::fs::rename(&newer, &program).expect("it is replaced");
    server.release("a");
    assert_eq!(code_of(&mut run), 0);
}

#[test]
fn a_variable_that_is_set_to_nothing_is_not_set() {
    let server = Server::start();
    for variable in [
        "REDIS_URL_FILE",
        "LEASEHOLD_NAME",
        "LEASEHOLD_NAME_PREFIX",
        "LEASEHOLD_MASTERS_NAME",
        "LEASEHOLD_NODES",
        "LEASEHOLD_SETTINGS",
    ] {
        let output = server.leasehold(&["try", "a"]).env(variable, "").output();
        let output = output.expect("the program runs");
        assert_eq!(output.status.code(), Some(0), "{variable}: {output:?}");
    }
}

/// Or after a third of the TTL, if the grace is longer.
#[test]
fn who_ignores_the_request_to_end_is_killed_after_the_grace() {
    let server = Server::start();
    let script = "trap '' TERM; echo $$ > pid; while test -e pid; do sleep 0.05; done";
    for (ttl, grace) in [("1", "0.3"), ("3", "600")] {
        let mut run = server.spawn_shell(&["--ttl", ttl, "--grace", grace], script);
        let pid = server.wait_for_text("pid");
        server.release("a");
        assert_eq!(code_of(&mut run), 79, "{grace}");
        assert!(!is_alive(&pid), "{grace}");
        std::fs::remove_file(server.file("pid")).expect("a file");
    }
}

#[test]
fn who_ignores_the_request_to_end_is_killed_though_the_server_does_not_answer() {
    let server = Server::start();
    let script = "trap '' TERM; echo $$ > pid; while test -e pid; do sleep 0.05; done";
    let mut run = server.spawn_shell(&["--ttl", "3", "--grace", "1"], script);
    let pid = server.wait_for_text("pid");
    server.signal(Signal::STOP);
    eventually("it is killed", || !is_alive(&pid));
    server.signal(Signal::CONT);
    assert_eq!(code_of(&mut run), 79);
}

/// Its lock is lost when the outer one ends, and when its own longest hold is over.
#[test]
fn an_inner_run_kills_who_ignores_the_request_to_end() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let ignores = "trap '' TERM; echo $$ > pid; while test -e pid; do sleep 0.05; done";
    std::fs::write(server.file("ignores"), ignores).expect("a file");
    for (max_hold, outer_ends_when) in [("60", "test -s pid"), ("2", "test -s code")] {
        let inner = format!("{me} run --grace 0.3 --max-hold {max_hold} a -- sh ignores");
        std::fs::write(server.file("inner"), format!("{inner}; echo $? > code")).expect("a file");
        let script = format!("setsid sh inner & while ! {outer_ends_when}; do sleep 0.02; done");
        let mut outer = server.spawn_shell(&["--foreground"], &script);
        let pid = server.wait_for_text("pid");
        assert_eq!(server.wait_for_text("code"), "79", "{max_hold}");
        assert!(!is_alive(&pid), "{max_hold}");
        assert_eq!(code_of(&mut outer), 0, "{max_hold}");
        for file in ["pid", "code"] {
            std::fs::remove_file(server.file(file)).expect("a file");
        }
    }
}

#[test]
fn the_command_ends_before_its_lock_does_if_the_server_does_not_answer() {
    let server = Server::start();
    let script =
        "trap 'date +%s%N > ended; exit' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let mut run = server.spawn_shell(&["--ttl", "3", "--grace", "1"], script);
    server.wait_for_text("pid");
    let left: u64 = server.command("PTTL", &["a"]);
    let begun = Instant::now();
    server.signal(Signal::STOP);
    server.wait_for_text("ended");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(left), "{took:?} of {left} ms");
    server.signal(Signal::CONT);
    assert_eq!(code_of(&mut run), 79);
}

#[test]
fn the_user_says_what_a_loss_does() {
    let server = Server::start();
    let goes_on = "echo $$ > pid; sleep 1.5; echo done > done";
    let mut run = server.spawn_shell(&["--ttl", "1", "--on-lost", "continue"], goes_on);
    server.wait_for_text("pid");
    server.release("a");
    assert_eq!(code_of(&mut run), 79, "it is told all the same");
    assert_eq!(server.text("done").trim(), "done");

    let script = "trap '' TERM; echo $$ > pid2; while :; do sleep 0.05; done";
    let action = "echo $LEASEHOLD_LOCK: $LEASEHOLD_LOST: $LEASEHOLD_LOST_TEXT > why; \
                  kill -KILL -$LEASEHOLD_PID";
    let mut run = server.spawn_shell(&["--ttl", "1", "--on-lost-run", action], script);
    server.wait_for_text("pid2");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    assert_eq!(server.text("why").trim(), "a: gone: the server no longer holds it");

    let mut run = server.spawn_shell(
        &["--ttl", "1", "--on-lost", "kill", "--lost-exit-code", "43"],
        "trap '' TERM; echo $$ > pid3; sleep 60",
    );
    server.wait_for_text("pid3");
    server.release("a");
    assert_eq!(code_of(&mut run), 43);
}

/// A resource would refuse the writer of the lost lock by the token of another one.
#[test]
fn the_command_for_a_loss_sees_the_token_of_the_lost_lock_and_nothing_of_others() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let action = "echo \"$LEASEHOLD_LOCK: $LEASEHOLD_TOKEN,$LEASEHOLD_TTL_MS,$LEASEHOLD_HELD.\" > why; \
                  kill -KILL -$LEASEHOLD_PID";
    let outer = ["run", "outer", "--", me, "run", "--on-lost-run", action];
    let script = "echo $LEASEHOLD_TOKEN > token; while :; do sleep 0.05; done";
    let inner = ["--ttl", "3", "a", "--", "sh", "-c", script];
    let mut run = server.spawn(&[&outer[..], &inner].concat());
    let token = server.wait_for_text("token");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    assert_eq!(server.text("why").trim(), format!("a: {token},,."));

    // The token of a lock that is borrowed is that of the outer one, which goes on.
    let inner = ["--max-hold", "0.3", "outer", "--", "sleep", "60"];
    assert_eq!(server.code(&[&outer[..], &inner].concat()), 79);
    assert_eq!(server.text("why").trim(), "outer: ,,.");
}

#[test]
fn what_an_inner_run_has_from_the_outer_one_is_told() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let outer = ["run", "a", "--", me];
    let said = |inner: &[&str]| {
        let output = server.output(&[&outer[..], inner].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let borrowed = "has \"a\" from an outer run\n";
    let only = said(&["-v", "run", "-n", "a", "--", "true"]);
    assert_eq!(only, format!("leasehold: {borrowed}"));
    let both = said(&["-v", "run", "-n", "a", "b", "--", "true"]);
    assert!(
        both.starts_with("leasehold: took \"b\" (token ") && both.ends_with(borrowed),
        "{both}"
    );
    let taken: Value =
        serde_json::from_str(&said(&["--json", "run", "-n", "a", "b", "--", "true"]))
            .expect("JSON");
    assert_eq!(
        (&taken["lent"], &taken["locks"][0]["name"]),
        (&json!(["a"]), &"b".into()),
        "{taken}"
    );

    // It would end with the outer one all the same.
    let min_hold = ["run", "-n", "--min-hold", "1s", "a", "--", "true"];
    let told = said(&min_hold);
    assert!(told.starts_with("leasehold: --min-hold has no effect on \"a\": "), "{told}");
    assert_eq!(said(&[&["-q"], &min_hold[..]].concat()), "");
}

#[test]
fn a_signal_ends_the_wait() {
    let server = Server::start();
    server.hold("a");
    for (signal, code) in
        [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)]
    {
        let mut run = server.spawn(&["run", "a", "--", "touch", "ran"]);
        let mut seen = String::new();
        eventually("it waits", || {
            seen = server.command::<Vec<String>>("PUBSUB", &["CHANNELS", "*"]).join(" ");
            !seen.is_empty()
        });
        kill(run.id(), signal);
        assert_eq!(code_of(&mut run), code, "{seen}");
    }
    assert!(!server.file("ran").exists());
}

#[test]
fn signals_reach_the_command_and_none_leaves_it_behind() {
    let server = Server::start();
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("TERM", Signal::TERM),
    ] {
        let script =
            format!("trap 'exit 42' {name}; echo $$ > pid{name}; while :; do sleep 0.02; done");
        let mut run = server.spawn_shell(&[], &script);
        let pid = server.wait_for_text(&format!("pid{name}"));
        kill(run.id(), signal);
        assert_eq!(code_of(&mut run), 42, "{name}");
        assert!(!is_alive(&pid));
        assert!(!server.is_locked("a"));
    }
}

/// A command that writes its pid, and goes on until there is a file `go`.
const UNTIL_GO: &str = "echo $$ > pid; while ! test -e go; do sleep 0.02; done";

/// Starts `run` with a command that goes on until there is a file `go`, and stops the command. Its script begins with `first`.
fn stopped(server: &Server, options: &[&str], first: &str) -> Child {
    let script = format!("{first} {UNTIL_GO}");
    let run = server.spawn_shell(options, &script);
    let pid = server.wait_for_text("pid");
    kill(pid.parse().expect("a pid"), Signal::STOP);
    let stat = format!("/proc/{pid}/stat");
    let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    eventually("it is stopped", is_stopped);
    run
}

#[test]
fn a_command_that_was_stopped_goes_on_when_run_is_told_to() {
    let server = Server::start();
    let mut run = stopped(&server, &[], "");
    kill(run.id(), Signal::CONT);
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(code_of(&mut run), 0);
}

/// As `kill %1` at a prompt, where a command in the background is stopped because it reads from the terminal.
#[test]
fn a_command_that_was_stopped_ends_when_run_is_told_to_end() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        for options in [&["--foreground"][..], &[]] {
            let server = Server::start();
            let mut run = stopped(&server, options, "");
            kill(run.id(), signal);
            assert_eq!(code_of(&mut run), code, "{options:?}");
            assert!(!server.is_locked("a"), "{options:?}");
        }
    }
}

#[test]
fn a_command_that_was_stopped_is_told_to_end_when_its_lock_is_lost() {
    let server = Server::start();
    let mut run = stopped(&server, &["--ttl", "15"], "trap 'echo told > told; exit' TERM;");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    assert_eq!(server.text("told").trim(), "told", "it was killed without a word");
}

#[test]
fn a_second_request_to_end_kills() {
    let server = Server::start();
    let script = "trap 'echo one > once' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let mut run = server.spawn_shell(&[], script);
    server.wait_for_text("pid");
    kill(run.id(), Signal::TERM);
    server.wait_for_text("once");
    kill(run.id(), Signal::TERM);
    assert_eq!(code_of(&mut run), 128 + 9);
}

/// Some programs take the signal for the end of what they are doing, and go on with what comes next.
#[test]
fn a_request_to_end_long_after_the_first_is_not_the_second_and_kills_nobody() {
    let server = Server::start();
    let script = "trap 'echo x >> told' INT; echo $$ > pid; while :; do sleep 0.02; done";
    let mut run = server.spawn_shell(&["--grace", "0.3"], script);
    let pid = server.wait_for_text("pid");
    for told in ["x", "x\nx"] {
        kill(run.id(), Signal::INT);
        let is_told = || server.text("told").trim() == told;
        eventually("it is told, or killed", || is_told() || !is_alive(&pid));
        assert!(is_told(), "{told:?}");
        // Longer than the grace.
        std::thread::sleep(Duration::from_millis(500));
    }
    kill(run.id(), Signal::HUP);
    assert_eq!(code_of(&mut run), 128 + 1);
}

#[test]
fn the_command_dies_with_a_wrapper_that_is_killed() {
    let server = Server::start();
    let mut run = server.spawn_shell(&["--ttl", "2"], "echo $$ > pid; sleep 60");
    let pid = server.wait_for_text("pid");
    kill(run.id(), Signal::KILL);
    assert_eq!(run.wait().expect("it ends").signal(), Some(9));
    eventually("the command ends", || !is_alive(&pid));
    eventually("the lock ends with its TTL", || !server.is_locked("a"));
}

#[test]
fn an_inner_run_tells_the_tokens_of_its_own_locks_and_does_not_wait_for_an_outer_one() {
    let me = env!("CARGO_BIN_EXE_leasehold");
    for names in ["a", "b", "a b"] {
        let server = Server::start();
        let script = format!(
            "echo $LEASEHOLD_TOKEN > a; exec {me} run -n b -- sh -c \
             'echo $LEASEHOLD_TOKEN > b; exec {me} run -n {names} -- printenv LEASEHOLD_LOCK LEASEHOLD_TOKEN'"
        );
        let output = server.output(&["run", "a", "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let locks = names.split(' ');
        let tokens = locks.clone().map(|name| server.wait_for_text(name));
        let told: Vec<_> = locks.clone().map(str::to_owned).chain(tokens).collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), told.join("\n") + "\n");
    }
}

#[test]
fn each_lock_has_one_line_for_the_command_whatever_is_in_its_name() {
    let server = Server::start();
    let output = server.output(&["run", "a\nb", "c", "--", "printenv", "LEASEHOLD_LOCK"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\\nb\nc\n", "{output:?}");
}

#[test]
fn who_outlived_its_run_holds_nothing() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "setsid sh -c 'sleep 1; {me} run -n a -- true; echo $? > code' >/dev/null 2>&1 </dev/null &"
    );
    assert_eq!(server.code(&["run", "a", "--", "sh", "-c", &script]), 0);
    eventually("the lock is free", || !server.is_locked("a"));
    server.hold("a");
    assert_eq!(server.wait_for_text("code"), "75");
}

#[test]
fn two_wrappers_with_two_names_do_not_block_each_other() {
    let server = Server::start();
    let mut one =
        server.spawn(&["run", "a", "b", "--", "sh", "-c", "sleep 0.3; echo \"$LEASEHOLD_LOCK\""]);
    let mut other = server.spawn(&["run", "b", "a", "--", "sh", "-c", "sleep 0.3"]);
    let codes = (code_of(&mut one), code_of(&mut other));
    let mut errors = String::new();
    for run in [&mut one, &mut other] {
        run.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    }
    assert_eq!(codes, (0, 0), "{errors}");
    let mut said = String::new();
    one.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "a\nb\n");
}

#[test]
fn a_busy_second_lock_frees_the_first() {
    let server = Server::start();
    server.hold("b");
    for min_hold in ["0s", "30s"] {
        let options = ["run", "-n", "--min-hold", min_hold, "a", "b", "--", "true"];
        assert_eq!(server.code(&options), 75);
        assert!(!server.is_locked("a"), "it was kept, though nothing ran");
    }
}

#[test]
fn the_longest_hold_of_several_locks_begins_when_all_are_held() {
    let server = Server::start();
    server.hold("b");
    let () = server.command("PEXPIRE", &["b", "1500"]);
    let options = ["run", "--ttl", "1", "--max-hold", "2s", "a", "b", "--", "sleep", "1"];
    assert_eq!(server.code(&options), 0);
}

#[test]
fn a_short_job_keeps_the_others_out_for_the_shortest_hold() {
    let server = Server::start();
    assert_eq!(server.code(&["run", "--min-hold", "30s", "a", "--", "true"]), 0);
    assert_eq!(server.code(&["run", "-n", "a", "--", "true"]), 75);
    let left: i64 = server.command("PTTL", &["a"]);
    assert!((1..=30_000).contains(&left), "{left}");
}

#[test]
fn a_command_that_takes_too_long_loses_the_lock() {
    let server = Server::start();
    let began = Instant::now();
    let output = server.output(&["run", "--max-hold", "1s", "a", "--", "sleep", "60"]);
    assert_eq!(output.status.code(), Some(79));
    assert!(String::from_utf8_lossy(&output.stderr).contains("its longest hold is over"));
    assert!(began.elapsed() < Duration::from_secs(15), "a lease lasts for 30 s");
}

#[test]
fn who_wants_to_hear_less_is_told_of_a_loss_all_the_same() {
    let server = Server::start();
    let output = server.output(&["-q", "run", "--max-hold", "1s", "a", "--", "sleep", "60"]);
    assert_eq!(output.status.code(), Some(79));
    assert!(String::from_utf8_lossy(&output.stderr).contains("lost lock \"a\""), "{output:?}");
    for quiet in [&["-q"][..], &["-q", "--json"]] {
        let output = server.output(&[quiet, &["run", "a", "--", "true"]].concat());
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn events_can_be_read_by_programs() {
    let server = Server::start();
    let output = server.output(&["--json", "run", "a", "--", "true"]);
    let [event] = &events(&output)[..] else { panic!("{output:?}") };
    assert_eq!(event["schema"], 1);
    assert_eq!(event["event"], "taken");
    assert_eq!(event["locks"][0]["name"], "a");

    let lost = |reason: &str, text: &str| json!({"schema": 1, "event": "lost", "name": "a", "reason": reason, "text": text});
    let output = server.output(&["--json", "run", "--max-hold", "1s", "a", "--", "sleep", "60"]);
    assert_eq!(events(&output)[1..], [lost("max_hold", "its longest hold is over")]);
    // Only the release finds that one.
    let me = env!("CARGO_BIN_EXE_leasehold");
    let forces = ["--json", "run", "a", "--", me, "force", "a", "--any", "--yes"];
    let output = server.output(&forces);
    assert_eq!(events(&output)[1..], [lost("gone", "the server no longer holds it")]);

    server.hold("a");
    for (arguments, code) in [
        (&["run", "-n", "a", "--", "true"][..], 75),
        (&["run", "", "--", "true"], 64),
        (&["run", "a", "--", "no-such-command"], 127),
        (&["--settings", "missing", "run", "a", "--", "true"], 78),
    ] {
        let output = server.output(&[&["--json"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(code));
        let [event] = &events(&output)[..] else { panic!("{output:?}") };
        assert_eq!((&event["event"], &event["code"]), (&"failed".into(), &code.into()), "{event}");
        assert!(event["text"].is_string(), "{event}");
    }
}

/// What `run` said as JSON.
#[track_caller]
fn events(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn a_release_that_is_not_confirmed_has_an_exit_code_of_its_own() {
    let server = Server::start();
    let arguments = ["--json", "run", "--strict", "a", "--", "sh", "-c", UNTIL_GO];
    let mut run = server.spawn(&arguments);
    server.wait_for_text("pid");
    server.signal(Signal::STOP);
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(code_of(&mut run), 80);
    let event = &events(&run.wait_with_output().expect("it has ended"))[1];
    assert_eq!((&event["event"], &event["name"]), (&"not_released".into(), &"a".into()), "{event}");
}

/// Of a server that does not answer, each release would be waited for as long as the settings say.
#[test]
fn all_locks_are_released_at_once() {
    let server = Server::start();
    let names: Vec<String> = (0..30).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut run = server.spawn(&[&["run"], &names[..], &["--", "sh", "-c", UNTIL_GO]].concat());
    server.wait_for_text("pid");
    server.signal(Signal::STOP);
    let began = Instant::now();
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(code_of(&mut run), 0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_signal_ends_the_wait_for_the_release() {
    let server = Server::start();
    std::fs::write(server.file("settings"), "response_timeout = \"100s\"\n").expect("a file");
    let options = ["--json", "--settings", "settings", "run", "--strict", "--ttl", "300"];
    let mut run = server.spawn(&[&options[..], &["a", "--", "sh", "-c", UNTIL_GO]].concat());
    let pid = server.wait_for_text("pid");
    server.signal(Signal::STOP);
    std::fs::write(server.file("go"), "").expect("a file");
    eventually("the command ends", || !is_alive(&pid));
    kill(run.id(), Signal::TERM);
    assert_eq!(code_of(&mut run), 80);
    let event = &events(&run.wait_with_output().expect("it has ended"))[1];
    assert_eq!((&event["event"], &event["name"]), (&"not_released".into(), &"a".into()), "{event}");
}

#[test]
fn the_help_names_every_exit_code() {
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let help = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output();
        let help = String::from_utf8(help.expect("it runs").stdout).expect("text");
        for code in [0, 64, 65, 69, 70, 75, 77, 78, 79, 80, 126, 127] {
            let begin = format!("{code}  ");
            assert!(
                help.lines().any(|line| line.trim_start().starts_with(&begin)),
                "{code}: {help}"
            );
        }
    }
}

#[test]
fn it_is_silent_unless_asked() {
    let server = Server::start();
    let output = server.output(&["run", "a", "--", "true"]);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let output = server.output(&["-v", "run", "a", "--", "true"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("leasehold: took \"a\" (token "),
        "{output:?}"
    );
}

#[test]
fn a_password_can_stay_out_of_the_command_line() {
    let server = Server::start();
    std::fs::write(server.file("urls"), format!("# the lock server\n{}\n", server.url()))
        .expect("a file");
    let mut run = server.leasehold(&["--redis-file", "urls", "run", "a", "--", "true"]);
    assert_eq!(run.env_remove("REDIS_URL").status().expect("it runs").code(), Some(0));
    let mut wrong = server.leasehold(&["run", "a", "--", "true"]);
    let output = wrong.env("REDIS_URL", "redis://me:hidden@127.0.0.1:1").output().expect("it runs");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hidden"), "{output:?}");
}

#[test]
fn a_variable_that_is_no_text_is_named() {
    let server = Server::start();
    for variable in ["LEASEHOLD_NODES", "REDIS_URL", "LEASEHOLD_NAME_PREFIX"] {
        let mut look = server.leasehold(&["try", "a"]);
        let output = look.env(variable, OsStr::from_bytes(b"redis://\xff")).output();
        let output = output.expect("the program runs");
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        let told = format!("leasehold: {variable} is not valid UTF-8\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), told);
    }
}

/// Otherwise two programs with the same settings could have one lock, each on another server.
#[test]
fn the_servers_of_the_command_line_come_first_then_those_of_files_and_last_the_environment() {
    let server = Server::start();
    let (url, nowhere) = (server.url(), "redis://127.0.0.1:1");
    for (name, url) in [("here", &*url), ("nowhere", nowhere)] {
        std::fs::write(server.file(&format!("{name}.urls")), url).expect("a file");
        let settings = format!("nodes = {url:?}\n");
        std::fs::write(server.file(&format!("{name}.toml")), settings).expect("a file");
    }
    for options in [
        &["--settings", "here.toml"][..],
        &["--settings", "nowhere.toml", "--redis-file", "here.urls"],
        &["--settings", "nowhere.toml", "--redis-file", "nowhere.urls", "--redis", &*url],
    ] {
        for variable in ["LEASEHOLD_NODES", "REDIS_URL"] {
            let mut look = server.leasehold(&[options, &["try", "a"]].concat());
            let output = look.env(variable, nowhere).output().expect("the program runs");
            assert_eq!(output.status.code(), Some(0), "{options:?} {variable}: {output:?}");
        }
    }
}

/// Otherwise it would take tokens from another counter than the services, or put a lease back too early.
#[test]
fn the_settings_of_the_services_can_be_those_of_the_program() {
    let server = Server::start();
    let settings = format!(
        "nodes = {:?}\nname_prefix = \"shop:\"\nttl = 9\nredisson_fencing = true\n",
        server.url()
    );
    std::fs::write(server.file("settings"), settings).expect("a file");
    let script = "echo $LEASEHOLD_LOCK $LEASEHOLD_TTL_MS";
    let mut run =
        server.leasehold(&["--settings", "settings", "run", "a", "--", "sh", "-c", script]);
    let output = run.env_remove("REDIS_URL").output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "shop:a 9000\n", "{output:?}");
    assert_eq!(server.command::<u32>("EXISTS", &["redisson_lock_token:{shop:a}"]), 1);
    // The command line comes first.
    let overruled = ["--name-prefix", "", "run", "--ttl", "8s", "a", "--", "sh", "-c", script];
    let mut run = server.leasehold(&overruled);
    let output = run.env("LEASEHOLD_SETTINGS", "settings").output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a 8000\n", "{output:?}");
    // So does the environment, but not a variable that is set to nothing.
    for (variable, told) in [("mine:", "mine:a 9000\n"), ("", "shop:a 9000\n")] {
        let mut run = server.leasehold(&["run", "a", "--", "sh", "-c", script]);
        run.env("LEASEHOLD_SETTINGS", "settings").env("LEASEHOLD_NAME_PREFIX", variable);
        let output = run.output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), told, "{variable:?}: {output:?}");
    }
    std::fs::write(server.file("settings"), "\nrestart_quarantin = 33\n").expect("a file");
    let output = server.output(&["--settings", "settings", "try", "a"]);
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("leasehold: --settings settings, line 2: "), "{said}");
    assert!(said.contains("restart_quarantin"), "{said}");
}

#[test]
fn a_process_that_the_command_leaves_behind_keeps_no_lock() {
    let server = Server::start();
    let status = server.code(&["run", "a", "--", "sh", "-c", "sleep 3 >/dev/null 2>&1 &"]);
    assert_eq!(status, 0);
    assert!(!server.is_locked("a"));
    assert_eq!(server.code(&["run", "-n", "a", "--", "true"]), 0);
}

#[test]
fn in_the_foreground_signals_go_to_the_command_alone() {
    let server = Server::start();
    let script = "sleep 60 & echo $! > grandchild; trap 'exit 7' TERM; wait";
    let mut run = server.spawn_shell(&["--foreground"], script);
    let grandchild = server.wait_for_text("grandchild");
    kill(run.id(), Signal::TERM);
    assert_eq!(code_of(&mut run), 7);
    assert!(is_alive(&grandchild));
    kill(grandchild.parse().expect("a pid"), Signal::KILL);
}

#[test]
fn help_begins_with_what_a_loss_does() {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["run", "--help"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let loss = text.find("If a lock is lost").expect("it is told");
    assert!(loss < text.find("Usage:").expect("usage"), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

/// A real-time signal has no name.
#[test]
fn a_command_may_die_by_any_signal() {
    let server = Server::start();
    assert_eq!(server.code(&["run", "a", "--", "sh", "-c", "kill -35 $$"]), 128 + 35);
    assert!(!server.is_locked("a"));
}

#[test]
fn the_lock_of_an_outer_run_is_another_one_with_another_prefix() {
    let server = Server::start();
    server.hold("us:a");
    let inner = ["--name-prefix", "us:", "run", "-n", "a", "--", "true"];
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let outer = ["--name-prefix", "eu:", "run", "a", "--", leasehold];
    assert_eq!(server.code(&[&outer[..], &inner].concat()), 75);
    let same = ["run", "-n", "eu:a", "--", "true"];
    assert_eq!(server.code(&[&outer[..], &same].concat()), 0, "it is held by the outer one");
}

#[test]
fn the_lock_of_an_outer_run_is_another_one_on_another_server() {
    let (server, other) = (Server::start(), Server::start());
    other.hold("a");
    let outer = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold")];
    for (url, code) in [(other.url(), 75), (server.url(), 0)] {
        let inner = ["--redis", &*url, "run", "-n", "a", "--", "touch", "ran"];
        assert_eq!(server.code(&[&outer[..], &inner].concat()), code, "{url}");
        assert_eq!(server.file("ran").exists(), code == 0, "{url}");
    }
}

/// Otherwise the inner one would wait for its own parent for ever.
#[test]
fn the_lock_of_an_outer_run_is_the_same_on_the_same_server_in_other_words() {
    let server = Server::start();
    let url = server.url().replace("unix://", "redis+unix://") + "?db=0";
    let outer = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold")];
    let inner = ["--redis", &*url, "run", "-n", "a", "--", "true"];
    assert_eq!(server.code(&[&outer[..], &inner].concat()), 0);
}

/// The reader of standard error may be gone, as when a connection to a terminal far away breaks.
#[test]
fn a_loss_ends_the_command_though_nobody_reads_what_is_said() {
    let server = Server::start();
    let script = "sleep 60 & echo $! > grandchild; wait";
    let mut run = server.spawn(&["-v", "run", "--ttl", "3", "a", "--", "sh", "-c", script]);
    drop((run.stderr.take(), run.stdout.take()));
    let grandchild = server.wait_for_text("grandchild");
    server.release("a");
    assert_eq!(code_of(&mut run), 79);
    eventually("the group has ended", || !is_alive(grandchild.trim()));
}

/// They arrive when a stopped job is continued, and when children of the program that became this one end.
#[test]
fn signals_that_end_nobody_do_not_end_the_wait() {
    let server = Server::start();
    server.hold("a");
    let mut run = server.spawn(&["run", "a", "--", "true"]);
    eventually("it waits", || server.command::<i64>("ZCARD", &["leasehold_queue:{a}"]) == 1);
    kill(run.id(), Signal::CONT);
    kill(run.id(), Signal::CHILD);
    std::thread::sleep(Duration::from_millis(300));
    server.release("a");
    assert_eq!(code_of(&mut run), 0);
}

/// As under `nohup`, or in the background of a script.
#[test]
fn a_signal_that_was_ignored_at_first_ends_neither_run_nor_its_command() {
    let server = Server::start();
    server.hold("a");
    let me = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "trap '' HUP INT; exec {me} run a -- sh -c 'echo $$ > pid; sleep 1; echo done > done'"
    );
    let mut run = Command::new("sh")
        .args(["-c", &script])
        .envs(server.leasehold(&[]).get_envs().filter_map(|(key, value)| Some((key, value?))))
        .current_dir(&server.directory)
        .spawn()
        .expect("a shell");
    let ignored = [Signal::HUP, Signal::INT];
    eventually("it waits", || server.command::<i64>("ZCARD", &["leasehold_queue:{a}"]) == 1);
    ignored.iter().for_each(|signal| kill(run.id(), *signal));
    std::thread::sleep(Duration::from_millis(300));
    server.release("a");
    let pid = server.wait_for_text("pid").parse().expect("a pid");
    for signal in ignored {
        kill(run.id(), signal);
        kill(pid, signal);
    }
    assert_eq!(code_of(&mut run), 0);
    assert_eq!(server.text("done").trim(), "done");
}

/// The outer one releases the lock when its command ends: what an inner one has left running in the background holds nothing then.
#[test]
fn an_inner_run_that_outlives_the_outer_one_has_lost_its_lock() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let command =
        "sh -c 'trap \"echo told > told; exit\" TERM; echo $$ > pid; while :; do sleep 0.02; done'";
    let inner = format!("{me} run a -- {command} 2>said; echo $? > code").replace('\'', "'\\''");
    for is_killed in [false, true] {
        let wait = if is_killed { "test -e never" } else { "test -s pid" };
        let script = format!("setsid sh -c '{inner}' & while ! {wait}; do sleep 0.02; done");
        let mut outer = server.spawn_shell(&["--foreground"], &script);
        let pid = server.wait_for_text("pid");
        if is_killed {
            kill(outer.id(), Signal::KILL);
        }
        let _ = outer.wait();
        assert_eq!(server.wait_for_text("told"), "told");
        assert_eq!(server.wait_for_text("code"), "79");
        let said = server.text("said");
        assert!(said.contains("lost lock \"a\": the outer run"), "{said}");
        assert!(!is_alive(&pid));
        for file in ["pid", "told", "code"] {
            std::fs::remove_file(server.file(file)).expect("a file");
        }
    }
}

#[test]
fn an_inner_run_whose_outer_one_ends_while_it_waits_runs_nothing() {
    let server = Server::start();
    server.hold("b");
    let me = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "{{ {me} run --lost-exit-code 43 a b -- touch ran; echo $? > code; }} >/dev/null 2>&1 & while ! test -e go; do sleep 0.02; done"
    );
    let mut outer = server.spawn_shell(&[], &script);
    eventually("it waits", || server.command::<i64>("ZCARD", &["leasehold_queue:{b}"]) == 1);
    std::fs::write(server.file("go"), "").expect("a file");
    assert_eq!(code_of(&mut outer), 0);
    assert_eq!(server.wait_for_text("code"), "43");
    server.release("b");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!server.file("ran").exists());
}

#[test]
fn the_longest_hold_of_an_inner_run_counts_for_the_lock_of_the_outer_one() {
    let server = Server::start();
    let me = env!("CARGO_BIN_EXE_leasehold");
    let began = Instant::now();
    let inner = ["run", "--max-hold", "0.3", "a", "--", "sleep", "60"];
    assert_eq!(server.code(&[&["run", "a", "--", me][..], &inner].concat()), 79);
    assert!(began.elapsed() < Duration::from_secs(15));
}

/// A blocked signal stays blocked in what is started.
#[test]
fn a_command_that_ends_is_noticed_though_the_signal_for_that_was_blocked() {
    let server = Server::start();
    let run = server.leasehold(&["run", "a", "--", "true"]);
    let mut blocked = std::process::Command::new("env");
    blocked.arg("--block-signal=CHLD").arg(run.get_program()).args(run.get_args());
    blocked.env("REDIS_URL", server.url());
    let mut child = blocked.spawn().expect("env of coreutils");
    assert_eq!(code_of(&mut child), 0);
    assert!(!server.is_locked("a"));
}

/// A pager that nobody scrolls does not read on: the pipe is full, and stays open.
#[test]
fn a_loss_ends_the_command_though_nobody_reads_on() {
    let server = Server::start();
    let script = "yes >&2 & echo $$ > pid; while :; do sleep 0.1; done";
    let mut run = server.spawn_shell(&["--ttl", "3"], script);
    let pid = server.wait_for_text("pid");
    std::thread::sleep(Duration::from_millis(500));
    server.release("a");
    eventually("the command ends", || !is_alive(&pid));
    assert_eq!(code_of(&mut run), 79);
}
