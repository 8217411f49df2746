//! The order of the modules: each uses only itself and those above it, and the crates at the edges stay there. And no file is
//! long.

use std::path::Path;

/// From the top to the bottom, as in `src/lib.rs` and in `ARCHITECTURE.md`.
const LAYERS: [&str; 23] = [
    "clock",
    "serial",
    "text",
    "key",
    "waiter",
    "owner",
    "secret",
    "error",
    "config",
    "tls",
    "script",
    "monitor",
    "counts",
    "events",
    "node",
    "fleet",
    "engine",
    "guard",
    "primitives",
    "client",
    "settings",
    "meters",
    "forcing",
];

/// Inside the engine.
const ENGINE: [&str; 15] = [
    "kind", "tally", "round", "backoff", "quorum", "lease", "inbox", "watchdog", "place", "watch",
    "circles", "order", "notes", "gate", "acquire",
];

/// How many lines a file may have, with its comments and tests.
const LONGEST: usize = 400;

/// A file's path below `src/`, and its text.
pub fn sources() -> Vec<(String, String)> {
    fn collect(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, root, found);
            } else {
                let name = path.strip_prefix(root).expect("below the root").display().to_string();
                found.push((name, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 15, "only {} files", found.len());
    found
}

/// The code of a file, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split("//").next().unwrap_or_default())
}

/// The modules below `prefix` that a file names, with one name or several in braces.
fn used<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for line in code(text) {
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            let end =
                rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
            found.push(&rest[..end]);
        }
    }
    found
}

fn layer(of: &str, layers: &[&str]) -> Option<usize> {
    layers.iter().position(|layer| *layer == of)
}

fn module(path: &str) -> &str {
    path.split(['/', '.']).next().expect("a first part")
}

#[test]
fn a_module_uses_only_those_above_it() {
    let mut checked = 0;
    for (path, text) in sources() {
        let own = module(&path);
        // The documents have no code.
        if own == "lib" || own == "docs" {
            continue;
        }
        // The blocking client is below all others.
        let own_layer = layer(own, &LAYERS).unwrap_or(LAYERS.len());
        assert!(own_layer < LAYERS.len() || own == "blocking", "{path} is in no layer");
        for used in used(&text, "crate::") {
            let Some(layer) = layer(used, &LAYERS) else { continue };
            assert!(layer <= own_layer, "{path} uses {used}, which is below it");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} uses were found");
}

#[test]
fn a_part_of_the_engine_uses_only_those_above_it() {
    let mut checked = 0;
    for (path, text) in sources() {
        let Some(own) = path.strip_prefix("engine/").map(module) else { continue };
        let Some(own_layer) = layer(own, &ENGINE) else {
            assert_eq!(own, "mod", "{path} is in no layer");
            continue;
        };
        let uses = used(&text, "super::").into_iter().chain(used(&text, "crate::engine::"));
        for used in uses {
            let Some(layer) = layer(used, &ENGINE) else { continue };
            assert!(layer <= own_layer, "{path} uses {used}, below it");
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} uses were found");
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let all = sources();
    for folder in ["engine/gate/", "engine/lease/", "engine/quorum/", "node/"] {
        let mut left: Vec<(&str, Vec<&str>)> = all
            .iter()
            .filter_map(|(path, text)| {
                let name = path.strip_prefix(folder)?.strip_suffix(".rs")?;
                let is_beside = !name.contains('/') && name != "mod";
                is_beside.then(|| (name, used(text, "super::")))
            })
            .collect();
        assert!(left.len() > 4, "{folder} has only {} files", left.len());
        // Whatever uses none of the others is in no circle, and neither is what uses only such.
        loop {
            let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
            left.retain(|(name, uses)| uses.iter().any(|it| it != name && names.contains(it)));
            if left.len() == names.len() {
                break;
            }
        }
        assert!(left.is_empty(), "circles of files in {folder}: {left:?}");
    }
}

#[test]
fn the_redis_crate_stays_at_the_edge() {
    for (path, text) in sources() {
        let allowed = path.starts_with("node/")
            || ["config/address.rs", "error/fault.rs", "tls.rs"].contains(&path.as_str());
        let uses = code(&text).any(|line| {
            line.match_indices("redis::").any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':')
            })
        });
        assert!(allowed || !uses, "{path} uses the redis crate");
    }
}

#[test]
fn everything_is_traced_from_one_place() {
    let lines = ["error!", "warn!", "info!", "debug!", "trace!", "event!"];
    let traces = |text: &str| {
        code(text).any(|line| lines.iter().any(|it| line.contains(&format!("tracing::{it}"))))
    };
    let all = sources();
    let tracing: Vec<&str> =
        all.iter().filter(|(_, text)| traces(text)).map(|(path, _)| &**path).collect();
    assert!(tracing.contains(&"events.rs"));
    for path in tracing {
        assert_eq!(module(path), "events", "{path} traces");
    }
}

#[test]
fn a_file_is_short() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= LONGEST,
            "src/{path} has {lines} lines; more than {LONGEST} are about two things"
        );
    }
}

/// Where no host is ever suspended, all clocks that never go back say the same.
#[test]
fn on_linux_the_clock_is_read_that_goes_on_in_a_suspend() {
    let all = sources();
    let (_, clock) = all.iter().find(|(path, _)| path == "clock.rs").expect("a file");
    let read = code(clock).any(|line| line.contains("read(rustix::time::ClockId::Boottime)"));
    assert!(read, "a lease that ended in a suspend would seem to go on after it");
}

#[test]
fn only_the_blocking_client_blocks() {
    for (path, text) in sources() {
        let blocks = code(&text).any(|line| line.contains("block_on("));
        assert!(path.starts_with("blocking/") || !blocks, "{path} blocks");
    }
}
