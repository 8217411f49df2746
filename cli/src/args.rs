//! What can be typed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::settings::Settings;

/// Runs commands under distributed locks on Redis or Valkey, and shows who holds them and who waits.
#[derive(Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_help = CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub servers: Servers,
}

const CODES: &str = "\
Exit codes:
    0  done
   64  wrong usage, or a name that cannot be used
   65  a name belongs to another kind of lock, or to no lock
   69  the servers do not answer
   70  a fault of this program or of this host
   75  somebody else holds the lock
   77  a right or the login is denied
   78  a setting cannot work
   79  run: a lock was lost while the command ran, or an outer run ended before the command started
   80  run --strict: the command ended well, but the servers did not confirm the release
  126  run: the command is not executable
  127  run: the command was not found
`run` ends with the command's own code if it ran, and with 128 + n if signal n ended it. `doctor` ends \
with 1 if it has findings and with 2 if locks do not work, `force` with 1 if the lock is free.";

/// Where the locks are. Several URLs are several independent masters, of which a majority decides.
#[derive(Args)]
pub struct Servers {
    /// URL of a server; repeat it for each of several independent masters.
    ///
    /// redis://[user:password@]host[:port][/database], unix:///path, redis+sentinel://host,host/master or
    /// redis+cluster://host,host; with TLS rediss://, rediss+sentinel:// or rediss+cluster://. Others on this host can read a
    /// URL of the command line, so put passwords in --redis-file or in the environment: LEASEHOLD_NODES (several, with commas
    /// between them) or REDIS_URL.
    #[arg(long = "redis", value_name = "URL", global = true)]
    pub redis: Vec<String>,
    /// File with the URLs, one in each line.
    #[arg(long, value_name = "FILE", global = true, env = "REDIS_URL_FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub redis_file: Option<PathBuf>,
    /// TOML file with what the services' clients have set, such as restart_quarantine, pubsub, synced or redisson_fencing: some
    /// settings have to be the same everywhere. Its keys are those that the library reads; other options overrule it.
    #[arg(long, value_name = "FILE", global = true, env = "LEASEHOLD_SETTINGS", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub settings: Option<PathBuf>,
    /// What that file says.
    #[arg(skip)]
    pub file: Settings,
    /// The name under which others see this program [default: host name and process id].
    #[arg(long, value_name = "NAME", global = true, env = "LEASEHOLD_NAME")]
    pub name: Option<String>,
    /// Prefix of all names, as the services use it [env: LEASEHOLD_NAME_PREFIX].
    #[arg(long, value_name = "PREFIX", global = true)]
    pub name_prefix: Option<String>,
    /// What the services call the list of several independent masters, if they do.
    #[arg(long, value_name = "NAME", global = true, env = "LEASEHOLD_MASTERS_NAME")]
    pub masters_name: Option<String>,
    /// Write JSON: results to standard output, the events of `run` to standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say only what goes wrong. With --json, results are still written; of the events of `run`, only losses and failures are.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// `run`: also say how long the wait took, and the fencing tokens.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Command {
    Run(Run),
    /// Say whether locks are free now: exit 0 if all of them are, 75 if not. Takes nothing.
    Try(Names),
    /// Wait until locks are free: exit 0, or 75 if the time is over. Takes nothing.
    Wait(WaitFor),
    List(List),
    /// Show everything that the servers know about locks: holder, since when, token, who waits, what the holder waits for.
    Inspect(Names),
    /// Print a line for each change of locks, until interrupted.
    Watch(Names),
    Force(Force),
    /// Check servers and settings: rights, round trips, messages, clocks. Exit 0 if all is in order, 1 if there are findings, 2 if
    /// locks do not work.
    Doctor(Doctor),
    Export(Export),
    DevServer(DevServer),
    /// Print the completions for a shell.
    Completions {
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    Man {
        directory: PathBuf,
    },
    /// What `run` starts in place of the command: it arranges that the command ends with `run`, and becomes the command.
    #[command(name = "__exec", hide = true)]
    Exec(Exec),
}

/// Run a command while holding locks.
///
/// If a lock is lost, the command is told to end (TERM, to its whole process group) and killed 5 s later at the latest
/// (--grace). If the servers do not answer, both happen before the lock expires. The exit code is
/// then 79, even if the command ended well. Otherwise it is the command's own code, or 128 + n after signal n.
///
/// The command sees LEASEHOLD_LOCK and LEASEHOLD_TOKEN (one line for each lock), LEASEHOLD_TTL_MS, LEASEHOLD_NAME and
/// LEASEHOLD_HELD. A `run` inside the command that asks for a lock that is held already runs at once, and has lost that lock when
/// the outer one ends.
///
/// If `run` itself is killed, the command is killed, too (on Linux), but not what the command has started: use a control group
/// (systemd, a container) where that matters.
#[derive(Args)]
#[command(after_help = CODES)]
pub struct Run {
    /// Do not wait: exit with 75 if somebody else holds a lock.
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub no_wait: bool,
    /// Wait for at most this long, for all locks together ("30s", "2m", or seconds), then exit with 75. The time begins when `run` is
    /// connected to the servers, which may take 5 s (connect_timeout in --settings).
    #[arg(short = 'w', long, alias = "timeout", value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
    /// The code to exit with if somebody else holds a lock.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub conflict_exit_code: u8,
    /// The code to exit with if a lock is lost.
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::LOST)]
    pub lost_exit_code: u8,
    /// How long a lock lives without a renewal [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// Hold the locks for at most this long: then they count as lost.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_hold: Option<Duration>,
    /// Keep the locks taken for at least this long, even if the command ends earlier: for jobs that several hosts start at the
    /// same time. `run` ends with the command all the same. Behind Sentinels, in a cluster and over several masters it may not
    /// be longer than the restart_quarantine. It has no effect on a lock that an outer `run` holds.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min_hold: Option<Duration>,
    /// What to do if a lock is lost.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub on_lost: OnLost,
    /// A shell command to run in place of the TERM signal if a lock is lost. It sees the reason in LEASEHOLD_LOST, as a
    /// word such as not_renewed, and in LEASEHOLD_LOST_TEXT, as a text; the lock's name in LEASEHOLD_LOCK, its token in
    /// LEASEHOLD_TOKEN unless an outer `run` holds it, and the command's process id in LEASEHOLD_PID. The kill follows all the
    /// same.
    #[arg(long, value_name = "SHELL_COMMAND", conflicts_with = "on_lost")]
    pub on_lost_run: Option<String>,
    /// Time between the request to end and the kill, at most a third of the TTL.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub grace: Duration,
    /// Leave the command in this process group: signals go only to the command itself, and what it leaves behind goes on. On a
    /// terminal, Ctrl-C reaches it twice, from the terminal and from `run`.
    #[arg(long)]
    pub foreground: bool,
    /// Serve all waiters in the order of their arrival.
    #[arg(long)]
    pub fair: bool,
    /// Exit with 80 if the command ended well, but the servers did not confirm the release.
    #[arg(long)]
    pub strict: bool,
    /// Names of the locks; they are taken in sorted order.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The command and its arguments, behind `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct Names {
    /// Names of the locks.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// List the locks on the servers: who holds them, since when, and how many wait.
///
/// Servers keep no list of locks, so all keys are looked at, with pauses that leave the servers four fifths of their time: ten
/// to twenty seconds for a million keys. Locks with the most waiters come first, then those held longest.
///
/// WAITS-FOR names the locks that the holder waits for, as it has noted on the servers; where nothing is noted, those that a client
/// of its name waits for. Clients that wait for each other in a circle are named below. Without notes that may be no deadlock: a client
/// may hold in one task and wait in another, so look at both before you free a lock.
#[derive(Args)]
pub struct List {
    /// Only names that begin with this; it is no pattern.
    #[arg(default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only locks that somebody waits for.
    #[arg(long)]
    pub contended: bool,
    /// Draw who holds and who waits, in Graphviz's language: `leasehold list --dot | dot -Tsvg`.
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
    /// Make no pauses: all other clients of the servers wait for some milliseconds, again and again.
    #[arg(long)]
    pub fast: bool,
}

#[derive(Args)]
pub struct WaitFor {
    #[command(flatten)]
    pub names: Names,
    /// Wait for at most this long ("30s", "2m", or seconds). Connecting to the servers is not cut short by it, and may take 5 s
    /// (connect_timeout in --settings).
    #[arg(short = 'w', long, alias = "timeout", value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
}

/// Free a lock that somebody else holds.
///
/// Name the holder as `list` or `inspect` has shown it. If somebody else has taken the lock since, nothing is freed, and the exit
/// code is 75. The holder learns of it at its next renewal (one of Redisson when it unlocks), and may still be at work until then.
#[derive(Args)]
pub struct Force {
    /// Name of the lock.
    // Not `name`: that is the client's.
    #[arg(value_name = "NAME")]
    pub lock: String,
    /// The holder to expect, as `list` or `inspect` shows it, or more of its id.
    #[arg(long, value_name = "HOLDER", required_unless_present = "any", conflicts_with = "any")]
    pub holder: Option<String>,
    /// Free it whoever holds it. Needs --yes.
    #[arg(long, requires = "yes")]
    pub any: bool,
    /// Confirm --any.
    #[arg(long, conflicts_with = "holder")]
    pub yes: bool,
}

#[derive(Args)]
pub struct Doctor {
    /// How many times to take and release a lock of its own.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pairs: u32,
}

/// Show the locks over HTTP: /metrics for Prometheus, /locks.json, /healthz, and a page for people at /.
///
/// It only shows. It lists all locks once for all readers, at most every 5 s (--every), and pauses for at least four times as long
/// as a list takes. There is no login, so it listens on this host alone unless --listen says otherwise: put a proxy in front.
#[derive(Args)]
pub struct Export {
    /// Where to listen: an address with a port, or just a port, which only this host can reach.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9910", value_parser = crate::export::address)]
    pub listen: SocketAddr,
    /// A host name by which readers call it, besides addresses and localhost; repeat it for several.
    #[arg(long, value_name = "NAME", value_parser = crate::export::host)]
    pub host: Vec<String>,
    /// Time between two lists, at least.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub every: Duration,
    /// How many locks have metrics of their own. Locks with the most waiters come first, then those held longest.
    #[arg(long, default_value_t = 500)]
    pub limit: usize,
    /// Only locks whose names begin with this.
    #[arg(default_value = "", hide_default_value = true)]
    pub prefix: String,
}

/// Run an in-memory server, for development: its data ends with it.
///
/// Only in a program that was built with it: `cargo install leasehold-cli --features dev-server`.
#[derive(Args)]
pub struct DevServer {
    /// The port; 0 stands for any that is free.
    #[arg(long, default_value_t = 6399)]
    pub port: u16,
}

#[derive(Args)]
pub struct Exec {
    pub parent: i32,
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// What `run` does about a loss. A command of the user's is another option, so that no command is a misspelt action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// Tell the command to end, and kill it after the grace.
    Term,
    /// Kill the command at once.
    Kill,
    /// Let the command go on, although somebody else may hold the lock.
    Continue,
}

/// Reads "90", "1.5", "30s" or "1h 5m". A plain number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let plain = text.parse::<f64>().ok().map(Duration::try_from_secs_f64);
    match plain {
        Some(seconds) => seconds.map_err(|error| error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        for arguments in [
            ["export", "--host", "locks.example.com:9910", "--quiet"],
            ["force", "orders", "--holder=billing-7:01234567", "--yes"],
        ] {
            let all = ["leasehold"].into_iter().chain(arguments);
            assert!(Cli::try_parse_from(all).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_plain_number_is_seconds() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "-1", "inf", "NaN", "soon", "3 parsecs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
