//! Several independent masters.

use crate::support::{Server, code_of, eventually};

/// Three independent masters. The first has a file with their URLs, and one with settings by which their grants count at once.
fn masters() -> [Server; 3] {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls = servers.each_ref().map(Server::url).join("\n");
    std::fs::write(servers[0].file("urls"), urls).expect("a file");
    let settings = "restart_quarantine = \"0s\"\n";
    std::fs::write(servers[0].file("settings"), settings).expect("a file");
    servers
}

#[test]
fn several_servers_have_the_lock_together_however_they_are_named() {
    let servers = masters();
    let urls = servers.each_ref().map(Server::url);
    let one_by_one = ["--redis", &urls[0], "--redis", &urls[1], "--redis", &urls[2]];
    let script = "while ! test -e go; do sleep 0.02; done";
    for (options, nodes) in [
        (&one_by_one[..], String::new()),
        (&["--redis-file", "urls"], String::new()),
        (&[], urls.join(",")),
    ] {
        let run = ["--settings", "settings", "run", "a", "--", "sh", "-c", script];
        let mut run = servers[0].leasehold(&[options, &run].concat());
        let mut run = run.env("LEASEHOLD_NODES", &nodes).spawn().expect("the program runs");
        eventually("each of them has it", || servers.iter().all(|server| server.is_locked("a")));
        std::fs::write(servers[0].file("go"), "").expect("a file");
        assert_eq!(code_of(&mut run), 0, "{options:?} {nodes}");
        eventually("all are free", || !servers.iter().any(|server| server.is_locked("a")));
        std::fs::remove_file(servers[0].file("go")).expect("a file");
    }
}

/// Otherwise the inner one would wait for the outer one for ever.
#[test]
fn the_lock_of_an_outer_run_is_the_same_on_the_same_masters_in_another_order() {
    let servers = masters();
    let urls = servers.each_ref().map(Server::url);
    let [one, two, three] = urls.each_ref().map(String::as_str);
    let settings = ["--settings", "settings"];
    let in_order = ["--redis", one, "--redis", two, "--redis", three];
    let outer = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold")];
    let in_another = ["--redis", three, "--redis", one, "--redis", two];
    let inner = ["run", "-n", "a", "--", "true"];
    let all = [&settings[..], &in_order, &outer, &settings, &in_another, &inner].concat();
    assert_eq!(servers[0].code(&all), 0);
}

#[test]
fn a_fair_lock_is_on_one_server_only() {
    let servers = masters();
    let several = ["--settings", "settings", "--redis-file", "urls"];
    for (options, arguments, code) in [
        (&several[..], &["run", "--fair", "a", "--", "true"][..], 78),
        (&several, &["run", "a", "--", "true"], 0),
        (&[], &["run", "--fair", "a", "--", "true"], 0),
    ] {
        let all = [options, arguments].concat();
        assert_eq!(servers[0].code(&all), code, "{all:?}");
    }
}

#[test]
fn several_masters_keep_the_name_that_the_services_give_them() {
    let servers = masters();
    let named = ["--settings", "settings", "--redis-file", "urls", "--masters-name", "locks-eu"];
    assert_eq!(servers[0].code(&[&named[..], &["run", "a", "--", "true"]].concat()), 0);
    let kept = |server: &Server| server.command::<Option<String>>("GET", &["leasehold_masters"]);
    let kept: Vec<String> = servers.iter().filter_map(kept).collect();
    assert!(kept.len() >= 2 && kept.iter().all(|list| list == "locks-eu/3"), "{kept:?}");
}
