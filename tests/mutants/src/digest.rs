//! Tells whether the library is the same as before, whatever became of its tests.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::operators::is_tests;

/// Prints a number for what `src` and `lua` below `root` hold, without tests and comments.
pub fn print(root: &str) -> ExitCode {
    let mut files = Vec::new();
    for folder in ["src", "lua"] {
        collect(&Path::new(root).join(folder), &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file");
        path.hash(&mut hasher);
        if path.extension().is_some_and(|extension| extension == "rs") {
            let mut syntax = syn::parse_file(&text).expect("Rust");
            syntax.items.retain(|item| !matches!(item, syn::Item::Mod(module) if is_tests(module)));
            prettyplease::unparse(&syntax).hash(&mut hasher);
        } else {
            text.hash(&mut hasher);
        }
    }
    println!("{:016x}", hasher.finish());
    ExitCode::SUCCESS
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            files.push(path);
        }
    }
}
