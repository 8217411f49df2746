//! The parent's side: the processes, and the timeline of their events.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

use crate::event::{Event, What, now_us};
use crate::{Outcome, check};

/// The processes, and what has happened so far.
pub(crate) struct Stage {
    lock: String,
    url: String,
    began_at_us: u64,
    actors: BTreeMap<String, (Child, ChildStdin)>,
    heard: mpsc::UnboundedReceiver<Event>,
    reports: mpsc::UnboundedSender<Event>,
    /// The events so far, in the order of their times.
    pub(crate) events: Vec<Event>,
    act: u32,
}

impl Stage {
    pub(crate) fn new(lock: &Mutex, url: &str) -> Self {
        let (reports, heard) = mpsc::unbounded_channel();
        let (actors, events) = Default::default();
        let (lock, url) = (lock.name().to_owned(), url.to_owned());
        Self { lock, url, began_at_us: now_us(), actors, heard, reports, events, act: 0 }
    }

    /// Starts a process and waits until it is connected.
    pub(crate) async fn enter(&mut self, name: &str) -> Outcome<()> {
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .args([name, &self.lock])
            .env("REDIS_URL", &self.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let commands = child.stdin.take().ok_or("the process has no input")?;
        let mut lines =
            BufReader::new(child.stdout.take().ok_or("the process has no output")?).lines();
        let reports = self.reports.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(event) = Event::parse(&line) {
                    let _ = reports.send(event);
                }
            }
        });
        self.actors.insert(name.to_owned(), (child, commands));
        self.until(|event| event.by(name) && matches!(event.what, What::Done)).await?;
        Ok(())
    }

    /// Puts what a Sentinel reports among the events.
    pub(crate) fn listen(&self, sentinel: usize, mut reports: redis::aio::PubSub) {
        let events = self.reports.clone();
        tokio::spawn(async move {
            let mut messages = reports.on_message();
            while let Some(message) = messages.next().await {
                let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                let channel = message.get_channel_name().to_owned();
                let what = What::Reported { sentinel, channel, text };
                let _ = events.send(Event { at_us: now_us(), process: String::new(), what });
            }
        });
    }

    pub(crate) async fn tell(&mut self, name: &str, command: &str) -> Outcome<()> {
        let (_, commands) = self.actors.get_mut(name).ok_or("no such process")?;
        Ok(commands.write_all(format!("{command}\n").as_bytes()).await?)
    }

    /// Receives and prints events until one matches `wanted`.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Outcome<Event> {
        loop {
            let event = self.heard.recv().await.ok_or("no process reports events any longer")?;
            if let What::Failed(message) = &event.what {
                return Err(format!("{}: {message}", event.process).into());
            }
            if !matches!(event.what, What::Done) {
                self.print(event.at_us, &event.process, &event.what.to_string());
            }
            let place = self.events.partition_point(|earlier| earlier.at_us <= event.at_us);
            self.events.insert(place, event.clone());
            if wanted(&event) {
                return Ok(event);
            }
        }
    }

    /// Receives and prints events for `time`.
    pub(crate) async fn pass(&mut self, time: Duration) -> Outcome<()> {
        match tokio::time::timeout(time, self.until(|_| false)).await {
            Ok(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) async fn kill(&mut self, name: &str) -> Outcome<()> {
        // Its input stays open until it is dead: if it closed, the process would release the lock.
        let (mut child, _commands) = self.actors.remove(name).ok_or("no such process")?;
        Ok(child.kill().await?)
    }

    pub(crate) fn signal(&self, name: &str, signal: &str) -> Outcome<()> {
        let (child, _) = self.actors.get(name).ok_or("no such process")?;
        let pid = child.id().ok_or("the process has ended")?;
        // The shell's own `kill` exists wherever there is a shell.
        let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status()?;
        check(status.success(), "the signal could not be sent")
    }

    pub(crate) fn title(&mut self, title: &str) {
        self.act += 1;
        println!("\n{}. {title}", self.act);
    }

    pub(crate) fn say(&self, text: &str) {
        self.print(now_us(), "", text);
    }

    fn print(&self, at_us: u64, process: &str, text: &str) {
        let at = at_us.saturating_sub(self.began_at_us) as f64 / 1000.0;
        println!("{at:>9.1}  {process:<6} {text}");
    }
}

/// Prints what the demo has shown, at its end.
pub(crate) fn sum_up(shown: &[String]) {
    println!("\nThe demo has shown:");
    for line in shown {
        println!("  * {line}");
    }
}
