//! `export` and `dev-server`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Server, code_of, eventually, kill};

/// `export` on a port of its own, ended on drop.
pub struct Export {
    process: Child,
    address: String,
}

impl Export {
    pub fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut process = server.spawn(&[&["export", "--listen", "0"], arguments].concat());
        let mut said = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let url = said.next().expect("a line").expect("text");
        let address = url.strip_prefix("leasehold: http://").expect("its address");
        let address = address.trim_end_matches('/').to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Self { process, address }
    }

    /// The status and the text that one request gets.
    fn ask(&self, request: &str, host: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head[9..12].parse().expect("a status"), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), &self.address)
    }

    fn locks(&self) -> Value {
        serde_json::from_str(&self.get("/locks.json").1).expect("JSON")
    }

    #[track_caller]
    pub fn metric(&self, line: &str) {
        eventually(line, || self.get("/metrics").1.lines().any(|found| found.starts_with(line)));
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn export_shows_locks_to_prometheus_to_programs_and_to_people() {
    let server = Server::start();
    server.hold("orders:\"1\"");
    server.hold("other");
    let export = Export::start(&server, &["--every", "0.2", "orders:"]);
    export.metric("leasehold_up 1");
    export.metric("leasehold_locks{kind=\"mutex\"} 1");
    export.metric(r#"leasehold_lock_waiting_clients{lock="orders:\"1\""} 0"#);
    export.metric(r#"leasehold_lock_ttl_seconds{lock="orders:\"1\""} 5"#);
    export.metric(&format!("leasehold_server_up{{node=\"{}\"}} 1", server.url()));
    for noted in ["true", "false"] {
        export.metric(&format!("leasehold_suspected_deadlocks{{noted=\"{noted}\"}} 0"));
    }
    let text = export.get("/metrics").1;
    let documented = include_str!("../../../docs/operating.md").split('`');
    let documented: Vec<_> =
        documented.filter(|word| word.starts_with("leasehold_lock_")).collect();
    assert!(documented.len() >= 4, "{documented:?}");
    for metric in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = metric.split(' ').next().expect("a name");
        assert!(
            include_str!("../../../docs/operating.md").contains(&format!("`{name}`")),
            "{name}"
        );
    }
    for name in documented {
        assert!(text.contains(&format!("# TYPE {name} gauge")), "{name}: {text}");
    }
    assert_eq!(export.get("/healthz"), (200, "ok\n".to_owned()));
    let shown = export.locks();
    assert_eq!((&shown["schema"], &shown["complete"]), (&1.into(), &true.into()), "{shown}");
    assert_eq!(shown["locks"][0]["name"], "orders:\"1\"", "{shown}");
    assert!(shown["age"].as_f64().is_some(), "{shown}");
    let first = (&shown["locks"][0]["kind"], &shown["nodes"][0]["state"]);
    assert_eq!(first, (&"mutex".into(), &"up".into()), "{shown}");
    let (status, page) = export.get("/");
    assert!(status == 200 && page.contains("locks.json"), "{status} {page}");

    let mut run = server.spawn(&["--name", "web-1", "run", "orders:2", "--", "sleep", "60"]);
    export.metric(r#"leasehold_lock_held_seconds{lock="orders:2",holder="web-1:"#);
    export.metric(r#"leasehold_lock_token{lock="orders:2"} 1"#);
    kill(run.id(), Signal::TERM);
    code_of(&mut run);
}

#[test]
fn export_has_metrics_for_as_many_locks_as_it_is_told() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        server.hold(name);
    }
    let export = Export::start(&server, &["--every", "0.2", "--limit", "2"]);
    export.metric("leasehold_locks{kind=\"mutex\"} 3");
    export.metric("leasehold_locks_left_out 1");
    assert_eq!(export.get("/metrics").1.matches("\nleasehold_lock_ttl_seconds{").count(), 2);
}

#[test]
fn export_changes_nothing_and_answers_only_to_its_names() {
    let server = Server::start();
    let export = Export::start(&server, &["--host", "locks.example.com"]);
    for (request, host, status) in [
        ("POST /", &*export.address, 405),
        ("DELETE /locks.json", &export.address, 405),
        ("GET /nothing", &export.address, 404),
        ("GET /", "localhost:1", 200),
        ("GET /", "locks.example.com", 200),
        ("GET /locks.json", "evil.example.com", 421),
    ] {
        assert_eq!(export.ask(request, host).0, status, "{request} {host}");
    }
    let (_, head) = export.ask("HEAD /metrics", &export.address);
    assert_eq!(head, "", "a head and no body");
}

#[test]
fn export_says_that_it_knows_nothing_while_the_server_is_away() {
    let server = Server::start();
    server.hold("a");
    let export = Export::start(&server, &["--every", "0.2"]);
    export.metric("leasehold_up 1");
    let () = server.command("ACL", &["SETUSER", "default", "-scan"]);
    export.metric("leasehold_up 0");
    let (status, problem) = export.get("/healthz");
    assert!(status == 503 && problem.contains("denies"), "{status} {problem}");
    let shown = export.locks();
    assert_eq!(shown["complete"], false, "{shown}");
    assert_eq!(shown["locks"][0]["name"], "a", "what it knew last: {shown}");
    let () = server.command("ACL", &["SETUSER", "default", "+scan"]);
    export.metric("leasehold_up 1");
}

#[test]
fn a_server_is_not_up_to_prometheus_before_its_grants_count() {
    let server = Server::start();
    std::fs::write(server.file("settings"), "restart_quarantine = \"1h\"\n").expect("a file");
    let export = Export::start(&server, &["--every", "0.2", "--settings", "settings"]);
    eventually("it is asked", || export.locks()["nodes"][0]["state"] == "quarantined");
    let up = format!("\nleasehold_server_up{{node=\"{}\"}} 0\n", server.url());
    let text = export.get("/metrics").1;
    assert!(text.contains(&up), "{text}");
}

/// However many read, the server is asked once for all of them.
#[test]
fn export_asks_once_for_all_who_read() {
    let server = Server::start();
    let export = Export::start(&server, &["--every", "60"]);
    export.metric("leasehold_up 1");
    let asked = || {
        let stats: String = server.command("INFO", &["commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_scan:")).expect("asked");
        line.split(['=', ',']).nth(1).expect("calls").to_owned()
    };
    let before = asked();
    for _ in 0..50 {
        assert_eq!(export.get("/metrics").0, 200);
        export.locks();
    }
    assert_eq!(asked(), before);
}

#[test]
fn export_ends_by_a_signal_and_does_not_start_where_it_cannot_listen() {
    let server = Server::start();
    let mut export = Export::start(&server, &[]);
    assert_eq!(server.code(&["export", "--listen", &export.address]), 78);
    assert_eq!(server.code(&["export", "--listen", "nowhere"]), 64);
    kill(export.process.id(), Signal::TERM);
    assert_eq!(code_of(&mut export.process), 143);
}

#[test]
fn dev_server_is_a_server_for_development() {
    let program = env!("CARGO_BIN_EXE_leasehold");
    let mut server = Command::new(program)
        .args(["--quiet", "dev-server", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    if !cfg!(feature = "dev-server") {
        assert_eq!(code_of(&mut server), 64);
        return;
    }
    let mut said = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let url = said.next().expect("a line").expect("text");
    let leasehold = |arguments: &[&str]| {
        let mut command = Command::new(program);
        let command = command.env_remove("LEASEHOLD_HELD").args(["--redis", &url]).args(arguments);
        command.output().expect("it runs")
    };
    let listed = leasehold(&["run", "a", "--", program, "--redis", &url, "--json", "list"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["locks"][0]["name"], "a", "{listed}");
    assert_eq!(leasehold(&["try", "a"]).status.code(), Some(0));
    kill(server.id(), Signal::TERM);
    assert_eq!(code_of(&mut server), 143);
}
