//! Writes the mutants into a copy of the source, and a list of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::ExitCode,
};

use crate::{lua, operators::Operators};

/// A mutant's line in the list: its number, the file and function, what is changed.
#[derive(Debug)]
pub struct Mutant {
    pub number: usize,
    pub text: String,
}

impl Mutant {
    pub fn read(list: &str) -> Vec<Self> {
        let list = fs::read_to_string(list).expect("the list of mutants");
        let line = |line: &str| {
            let (number, text) = line.split_once('\t')?;
            Some(Self { number: number.parse().ok()?, text: text.to_owned() })
        };
        list.lines().filter_map(line).collect()
    }
}

/// Plants in `files` below `root` all mutants but those that `skipped` names: they do not compile.
pub fn plant(root: &str, list: &str, skipped: &str, files: &[&str]) -> ExitCode {
    let skipped: BTreeSet<String> =
        fs::read_to_string(skipped).unwrap_or_default().lines().map(str::to_owned).collect();
    let mut mutants = Vec::new();
    let mut scripts = String::new();
    for file in files {
        let path = Path::new(root).join(file);
        let source = fs::read_to_string(&path).expect("a source file");
        if file.ends_with(".lua") {
            for (what, script) in lua::mutants(file, &source) {
                mutants.push(what);
                scripts += &format!("    ({}, {source:?}, {script:?}),\n", mutants.len());
            }
        } else {
            let mut syntax = syn::parse_file(&source).expect("Rust");
            Operators::new(file, &skipped, &mut mutants).plant(&mut syntax);
            fs::write(&path, prettyplease::unparse(&syntax)).expect("the file can be written");
        }
    }
    number_the_alike(&mut mutants);
    let library = Path::new(root).join("src/lib.rs");
    let source = fs::read_to_string(&library).expect("src/lib.rs");
    let switch = SWITCH.replace("COUNT", &(mutants.len() + 1).to_string());
    let switch = switch.replace("    // SCRIPTS\n", &scripts);
    fs::write(&library, format!("{source}\n{switch}")).expect("src/lib.rs can be written");
    let lines = mutants.iter().enumerate().map(|(i, text)| format!("{}\t{text}\n", i + 1));
    fs::write(list, lines.collect::<String>()).expect("the list can be written");
    println!("{} mutants in {} files", mutants.len(), files.len());
    ExitCode::SUCCESS
}

/// So that each can be named: the second of those with the same text becomes `text #2`.
fn number_the_alike(mutants: &mut [String]) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for text in mutants {
        let times = times.entry(text.clone()).or_default();
        *times += 1;
        if *times > 1 {
            *text += &format!(" #{times}");
        }
    }
}

const SWITCH: &str = r#"
#[allow(missing_docs)]
#[doc(hidden)]
pub mod mutants {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    fn chosen() -> usize {
        static CHOSEN: OnceLock<usize> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            std::env::var("LEASEHOLD_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
        })
    }

    /// Whether mutant `number` is on. Without one, this tells that it was reached.
    pub fn on(number: usize) -> bool {
        let chosen = chosen();
        if chosen == 0 && !SEEN[number].swap(true, Ordering::Relaxed) {
            if let Some(file) = std::env::var_os("LEASEHOLD_MUTANTS_REACHED") {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
                let _ = file.and_then(|mut file| file.write_all(format!("{number}\n").as_bytes()));
            }
        }
        chosen == number
    }

    #[rustfmt::skip]
    static SCRIPTS: &[(usize, &str, &str)] = &[
    // SCRIPTS
    ];

    /// The script, which may consist of several files, or what the mutant that is on makes of it.
    pub fn script(text: &'static str) -> &'static str {
        let mut script = text;
        for (number, file, mutated) in SCRIPTS {
            if text.contains(file) && on(*number) {
                script = text.replace(file, mutated).leak();
            }
        }
        script
    }
}
"#;
