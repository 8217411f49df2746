//! What stands for a Sentinel, and says what a test wants.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{
    MASTER,
    resp::{bulk, line, take_command},
};

/// A Sentinel of the tests, which names what it is told to, and reports what it is told to.
pub struct Pretender {
    port: u16,
    state: Arc<State>,
    _listening: JoinSet<()>,
}

struct State {
    /// What it answers: the port of the master, and the epoch if it tells that.
    says: watch::Sender<(u16, Option<u64>)>,
    reports: watch::Sender<Option<String>>,
    questions: AtomicUsize,
    subscriptions: AtomicUsize,
}

impl Pretender {
    /// Starts one that names the master at `port`.
    pub async fn start(port: u16, epoch: Option<u64>) -> Self {
        Self::at(0, port, epoch).await
    }

    /// Starts one that listens on `its_port`, or on any if that is zero.
    pub async fn at(its_port: u16, port: u16, epoch: Option<u64>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", its_port)).await.expect("a free port");
        let its_port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State {
            says: watch::Sender::new((port, epoch)),
            reports: watch::Sender::new(None),
            questions: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
        });
        let mut listening = JoinSet::new();
        let serving_state = state.clone();
        listening.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                serving.spawn(serve(client, serving_state.clone()));
            }
        });
        Self { port: its_port, state, _listening: listening }
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// It names another master from now on, and reports nothing.
    pub fn says(&self, port: u16, epoch: Option<u64>) {
        self.state.says.send_replace((port, epoch));
    }

    /// It reports a switch, and answers accordingly.
    pub fn reports(&self, from: u16, to: u16) {
        self.state.says.send_modify(|(port, epoch)| {
            *port = to;
            *epoch = epoch.map(|epoch| epoch + 1);
        });
        let report = format!("{MASTER} 127.0.0.1 {from} 127.0.0.1 {to}");
        self.state.reports.send_replace(Some(report));
    }

    /// How often it was asked for the master's address.
    pub fn questions(&self) -> usize {
        self.state.questions.load(SeqCst)
    }

    /// How often somebody subscribed to its reports.
    pub fn subscriptions(&self) -> usize {
        self.state.subscriptions.load(SeqCst)
    }
}

async fn serve(mut client: TcpStream, state: Arc<State>) {
    let mut reports = state.reports.subscribe();
    let mut received = Vec::new();
    let mut listens = false;
    loop {
        let mut sent = Vec::new();
        tokio::select! {
            read = client.read_buf(&mut received) => match read {
                Ok(1..) => while let Some(words) = take_command(&mut received) {
                    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
                    listens |= words[0] == "SUBSCRIBE";
                    answer(&words, &state, &mut sent);
                },
                _ => return,
            },
            Ok(()) = reports.changed(), if listens => {
                let report = reports.borrow_and_update().clone().unwrap_or_default();
                line('*', 3, &mut sent);
                ["message", "+switch-master", &report].iter().for_each(|word| bulk('$', word.as_bytes(), &mut sent));
            }
        }
        if client.write_all(&sent).await.is_err() {
            return;
        }
    }
}

fn answer(words: &[&str], state: &State, sent: &mut Vec<u8>) {
    let (port, epoch) = *state.says.borrow();
    match (words[0], words.get(1).copied().unwrap_or_default(), epoch) {
        ("HELLO", ..) => {
            line('%', 1, sent);
            line('+', "proto", sent);
            line(':', 3, sent);
        }
        ("SENTINEL", "MASTER", Some(epoch)) => {
            line('*', 2, sent);
            bulk('$', b"config-epoch", sent);
            bulk('$', epoch.to_string().as_bytes(), sent);
        }
        ("SENTINEL", "MASTER", None) => {
            line(
                '-',
                "NOPERM User x has no permissions to run the 'sentinel|master' command",
                sent,
            );
        }
        ("SENTINEL", ..) => {
            state.questions.fetch_add(1, SeqCst);
            line('*', 2, sent);
            bulk('$', b"127.0.0.1", sent);
            bulk('$', port.to_string().as_bytes(), sent);
        }
        ("SUBSCRIBE", channel, _) => {
            state.subscriptions.fetch_add(1, SeqCst);
            line('*', 3, sent);
            bulk('$', b"subscribe", sent);
            bulk('$', channel.as_bytes(), sent);
            line(':', 1, sent);
        }
        _ => line('+', "OK", sent),
    }
}
