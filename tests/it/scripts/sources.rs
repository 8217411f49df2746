//! The text of the scripts: what each must state, and what none may do.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::lua;

/// The scripts, by file name.
fn scripts() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut scripts: Vec<_> = fs::read_dir(&dir)
        .expect("the scripts' directory can be read")
        .map(|entry| entry.expect("its entries can be read").path())
        .map(|path| {
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a script is text"))
        })
        .collect();
    scripts.sort_unstable();
    assert!(!scripts.is_empty(), "there are no scripts in {}", dir.display());
    scripts
}

/// The part of a line that runs.
fn code(line: &str) -> &str {
    line.split("--").next().unwrap_or_default()
}

/// The first arguments of all `redis.call` and `redis.pcall` in a script.
fn called(script: &str) -> Vec<&str> {
    let lines = script.lines().map(code);
    lines
        .flat_map(|line| line.split("redis.").skip(1))
        .filter_map(|rest| rest.strip_prefix("call(").or_else(|| rest.strip_prefix("pcall(")))
        .map(|args| args.split([',', ')']).next().unwrap_or_default().trim())
        .collect()
}

/// The commands that the scripts of locks run, in lower case, without the publish verb, which is an argument.
pub(super) fn commands() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for (file, script) in scripts() {
        // The first runs what it finds in its table. The others need rights that no user of locks must have, and lose
        // nothing where one is missing.
        let lists = ["list_page.lua", "waited_channels.lua"].contains(&&*file);
        if file == "preflight.lua" || file.starts_with("item") || lists {
            continue;
        }
        for command in called(&script) {
            if !command.starts_with("ARGV[") {
                let name = command.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
                let name = name.unwrap_or_else(|| panic!("{file} runs {command}"));
                commands.insert(name.to_lowercase());
            }
        }
    }
    commands
}

#[test]
fn every_command_is_probed_before_it_is_needed() {
    let preflight = lua::PREFLIGHT;
    // It is the publish verb, an argument, that is probed.
    for command in commands().into_iter().filter(|command| command != "publish") {
        let probe = format!("{{'{}'", command.to_uppercase());
        assert!(preflight.contains(&probe), "preflight.lua does not probe {command}");
    }
}

#[test]
fn every_publish_verb_is_the_argument_that_the_header_names() {
    for (file, script) in scripts() {
        for command in called(&script).into_iter().filter(|command| command.starts_with("ARGV[")) {
            let index = command.trim_start_matches("ARGV[");
            let index = index.split(']').next().unwrap_or_default();
            let header = script.lines().find(|line| line.starts_with("-- ARGV:")).unwrap_or("");
            let named = format!("{index} publish verb");
            assert!(header.contains(&named), "{file} runs {command}, which is not a verb");
        }
    }
}

#[test]
fn every_script_is_headed_by_its_keys_arguments_and_returns() {
    for (file, script) in scripts() {
        let header: Vec<_> = script.lines().take_while(|line| line.starts_with("-- ")).collect();
        assert!(header.len() >= 4, "{file} starts with a comment of what it does");
        for heading in ["-- KEYS: ", "-- ARGV: ", "-- Returns "] {
            let count = header.iter().filter(|line| line.starts_with(heading)).count();
            assert_eq!(count, 1, "{file} has one line {heading:?} in its header");
        }
        let purpose = header[0];
        assert!(!purpose.starts_with("-- KEYS"), "{file} says first what it does");
    }
}

/// What runs of a script's file, with what the library puts before it if the script grants the lock.
fn with_what_it_calls(file: &str, script: &str) -> String {
    let whole = lua::ALL.iter().find(|(name, _)| file.strip_suffix(".lua") == Some(name));
    let Some((name, whole)) = whole else { return script.to_owned() };
    if name.starts_with("permit_") || name.starts_with("item_") {
        // They use the queue's functions for locks not at all.
        return whole.replace(lua::QUEUE, "").replace(lua::SILENT, "");
    }
    if name.starts_with("latch_") {
        return (*whole).to_owned();
    }
    let grants = script.contains("take(") || script.contains("pump(");
    let goes_on = !whole.ends_with(script);
    if grants || goes_on { (*whole).to_owned() } else { script.to_owned() }
}

#[test]
fn every_header_numbers_what_the_script_uses() {
    for (file, script) in scripts() {
        let whole = with_what_it_calls(&file, &script);
        for array in ["KEYS", "ARGV"] {
            let heading = format!("-- {array}: ");
            let named = script.lines().find_map(|line| line.strip_prefix(&heading)).unwrap_or("");
            for index in 1..=9 {
                let used =
                    whole.lines().map(code).any(|line| line.contains(&format!("{array}[{index}]")));
                let numbered = named.starts_with(&format!("{index} "))
                    || named.contains(&format!(", {index} "));
                assert_eq!(used, numbered, "{array}[{index}] of {file}: used, and in its header");
            }
        }
    }
}

/// `tostring` and `..` write a token as 1.7952188159403e+15: its last digits would be lost.
#[test]
fn no_script_makes_text_of_a_number() {
    for (file, script) in scripts() {
        for line in script.lines().map(code) {
            assert!(!line.contains("tostring") && !line.contains(".."), "{file}: {line}");
        }
    }
}
