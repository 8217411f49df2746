//! Mutants of a Lua script: one line of it is dropped, or one word in it is another.

/// What becomes what. Both ways where both are given.
const WORDS: [(&str, &str); 16] = [
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" > ", " >= "),
    (" > ", " < "),
    (" < ", " <= "),
    (" >= ", " > "),
    (" <= ", " < "),
    (" and ", " or "),
    (" or ", " and "),
    (" + ", " - "),
    (" - ", " + "),
    ("not ", ""),
    ("{1", "{0"),
    ("{0", "{1"),
    ("'0'", "'1'"),
    (" 0", " 1"),
];

/// Each mutant of `source`: what is changed, and the whole script as it becomes.
pub fn mutants(file: &str, source: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut mutants = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let statement = line.trim();
        if statement.is_empty() || statement.starts_with("--") {
            continue;
        }
        let mut mutate = |what: String, with: &str| {
            let mut mutated = lines.clone();
            mutated[i] = with;
            mutants.push((format!("{file}: {what} in {statement}"), mutated.join("\n")));
        };
        let opens = statement.ends_with("then") || statement.contains("function");
        if !opens && !["end", "else"].contains(&statement) {
            mutate("drop the line".to_owned(), "");
        }
        for (word, other) in WORDS {
            for (at, _) in line.match_indices(word) {
                let with = format!("{}{other}{}", &line[..at], &line[at + word.len()..]);
                mutate(format!("`{}` becomes `{}`", word.trim(), other.trim()), &with);
            }
        }
    }
    mutants
}
