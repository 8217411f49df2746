//! What the figures were measured on.

/// The machine and its system.
pub fn machine() -> String {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()))
        .map_or(String::new(), |model| format!(" ({model})"));
    format!(
        "{cores} cores{model}, {} {} {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
    )
}

/// The server and its version, by its `INFO server`.
pub fn server(info: &str) -> String {
    let find = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    match (find("valkey_version"), find("redis_version")) {
        (Some(version), _) => format!("Valkey {}", version.trim()),
        (None, version) => format!("Redis {}", version.unwrap_or("of some version").trim()),
    }
}
