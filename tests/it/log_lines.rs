//! The page about the log (`docs/logs.md`) has a row for each line that the library writes, with its fields and its level.

use std::{fs, path::Path};

/// What the library writes with.
const MACROS: [&str; 6] = [
    "warn_if",
    "tracing::$level",
    "tracing::error",
    "tracing::warn",
    "tracing::info",
    "tracing::debug",
];

/// A line of the log, as the source has it.
struct Line {
    /// As `WARN`; `None` where it depends.
    level: Option<String>,
    target: String,
    fields: Vec<String>,
    message: String,
}

impl Line {
    /// Reads the rest of a call of a macro, from its first argument on.
    fn read(macro_name: &str, rest: &str) -> Self {
        let call = &rest[..rest.find(");").expect("a call ends")];
        // The last text is the message; there may be quotation marks of fields' values before it.
        let end = call.rfind('"').expect("a message");
        let start = call[..end].rfind('"').expect("its begin");
        let message = call[start + 1..end].split("\\\n").map(str::trim_start).collect();
        let mut arguments: Vec<&str> = call[..start].split(',').map(str::trim).collect();
        if macro_name == "warn_if" {
            arguments.remove(0);
        }
        let (targets, fields): (Vec<_>, Vec<_>) = arguments
            .into_iter()
            .filter(|argument| !argument.is_empty())
            .partition(|argument| argument.starts_with("target: "));
        let level = match macro_name {
            "warn_if" | "tracing::$level" => None,
            name => {
                Some(name.strip_prefix("tracing::").expect("a macro of tracing").to_uppercase())
            }
        };
        Self {
            level,
            target: targets.first().unwrap_or_else(|| panic!("no target: {message}"))
                ["target: ".len()..]
                .to_lowercase(),
            fields: fields
                .into_iter()
                .map(|field| {
                    field
                        .split(" = ")
                        .next()
                        .unwrap_or(field)
                        .trim_start_matches(['%', '?'])
                        .to_owned()
                })
                .collect(),
            message,
        }
    }
}

/// All lines that the library writes, but for the spans.
fn lines() -> Vec<Line> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lines = Vec::new();
    for file in ["events.rs", "events/deadlocks.rs", "events/nodes.rs"] {
        let text = fs::read_to_string(source.join(file)).expect("a source file");
        // Behind the macro that says `$($line)*`.
        for macro_name in MACROS {
            let begin = format!("{macro_name}!(");
            // The macro of our own passes `$($line)*` on.
            let calls = text.split(&begin).skip(1).filter(|rest| !rest.starts_with("$($line)"));
            lines.extend(calls.map(|rest| Line::read(macro_name, rest)));
        }
    }
    lines
}

/// A row of the page: the target of its table, and its cells.
type Row = (String, Vec<String>);

fn rows() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/logs.md");
    let mut target = String::new();
    let mut rows = Vec::new();
    for line in fs::read_to_string(page).expect("the page").lines() {
        if let Some(name) = line.strip_prefix("## Target `leasehold::") {
            target = name.trim_end_matches('`').to_owned();
        } else if line.starts_with("| ") && !line.starts_with("| level ") {
            let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            rows.push((target.clone(), cells.collect()));
        }
    }
    rows
}

/// The messages of a row; one that ends in ` ..` is only the beginning of one.
fn messages(row: &Row) -> impl Iterator<Item = &str> {
    row.1[1].split('`').skip(1).step_by(2)
}

fn is_of(message: &str, documented: &str) -> bool {
    match documented.strip_suffix(" ..") {
        Some(beginning) => message.starts_with(beginning),
        None => message == documented,
    }
}

#[test]
fn every_line_is_on_the_page_about_the_log_and_the_page_has_no_others() {
    let (lines, rows) = (lines(), rows());
    assert!(lines.len() > 40, "only {} lines were found", lines.len());
    for line in &lines {
        let message = &line.message;
        let row = rows
            .iter()
            .find(|row| {
                row.0 == line.target
                    && messages(row).any(|documented| is_of(message, documented))
                    && line
                        .level
                        .as_ref()
                        .is_none_or(|level| row.1[0].contains(level) || level == "DEBUG")
            })
            .unwrap_or_else(|| {
                panic!("docs/logs.md has no row for {:?} {}: {message}", line.level, line.target)
            });
        for field in &line.fields {
            assert!(
                row.1[2].contains(&format!("`{field}`")),
                "the row of '{message}' lacks the field {field}"
            );
        }
    }
    for row in rows.iter().filter(|row| !row.1[1].starts_with("span ")) {
        for documented in messages(row) {
            let is_written = |line: &Line| line.target == row.0 && is_of(&line.message, documented);
            assert!(lines.iter().any(is_written), "nothing writes '{documented}' of docs/logs.md");
        }
    }
}

#[test]
fn every_span_is_on_the_page_about_the_log_with_all_its_fields() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/primitives");
    let rows = rows();
    let mut count = 0;
    for file in fs::read_dir(source).expect("the source") {
        let path = file.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for call in text.split("debug_span!(").skip(1) {
            let lines = call.lines().map(|line| line.trim().trim_end_matches(','));
            let lines = lines.take_while(|line| !line.starts_with(')'));
            let mut parts = lines.skip_while(|line| !line.starts_with('"'));
            let title = format!("span `{}`", parts.next().expect("a name").trim_matches('"'));
            let row = rows.iter().find(|row| row.1[1] == title);
            let row = row.unwrap_or_else(|| panic!("docs/logs.md has no row for {title}"));
            for field in parts {
                let name = field.split([' ', '=']).next().expect("a name").trim_start_matches('%');
                assert!(row.1[2].contains(&format!("`{name}`")), "the row of {title} lacks {name}");
            }
            count += 1;
        }
    }
    assert_eq!(count, rows.iter().filter(|row| row.1[1].starts_with("span ")).count());
}
