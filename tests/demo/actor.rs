//! The child processes of the demo.

use leasehold::{Client, Guard, Mutex, NodeState, Owner};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::event::{Event, What, now_us};
use crate::{Outcome, TURNS, check, connect};

pub(crate) async fn actor(url: &str, name: &str, lock: &str) -> Outcome<()> {
    let actor = match connect(url, name).await {
        Ok(client) => {
            tokio::spawn(follow(name.to_owned(), client.clone()));
            Actor { name: name.to_owned(), lock: client.mutex(lock) }
        }
        Err(error) => {
            report(name, What::Failed(error.to_string()));
            return Ok(());
        }
    };
    actor.report(What::Done);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    // The process ends with its parent, which closes the input.
    while let Some(command) = commands.next_line().await? {
        let done = match &*command {
            "turns" => actor.turns().await,
            "nest" => actor.nest(&mut commands).await,
            "hold" => actor.hold(&mut commands).await,
            _ => Err(format!("unknown command {command:?}").into()),
        };
        actor.report(match done {
            Ok(()) => What::Done,
            Err(error) => What::Failed(error.to_string()),
        });
    }
    Ok(())
}

/// Reports when the client uses another server.
async fn follow(name: String, client: Client) {
    let address = || client.nodes()[0].address.clone();
    let mut before = address();
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = address();
        if now != before && client.nodes()[0].state != NodeState::Down {
            report(&name, What::Moves { to: now.to_string() });
            before = now;
        }
    }
}

struct Actor {
    name: String,
    lock: Mutex,
}

impl Actor {
    async fn turns(&self) -> Outcome<()> {
        for _ in 0..TURNS {
            let guard = self.take(&self.lock).await?;
            tokio::time::sleep(Duration::from_millis(40)).await;
            self.leave(guard).await?;
        }
        Ok(())
    }

    /// Holds the lock until the parent sends another line, or the lock is lost.
    async fn hold(&self, commands: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
        self.report(What::Waits);
        let guard = self.take(&self.lock).await?;
        tokio::select! {
            _ = commands.next_line() => self.leave(guard).await,
            _ = guard.lost() => {
                check(!guard.is_held(), "the lock is lost, but the guard says that it is held")?;
                self.report(What::Lost);
                Ok(())
            }
        }
    }

    /// Takes the lock three times: by handle, in a scope, and by `run`.
    async fn nest(&self, commands: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
        let me = Owner::named("order-17");
        let outer = self.take(&self.lock.owned_by(&me)).await?;
        let inside = async {
            let second = self.lock.lock().await?;
            self.report(What::Nests { level: second.hold_count(), token: second.token() });
            let third = async |third: &Guard| {
                self.report(What::Nests { level: third.hold_count(), token: third.token() });
                let _ = commands.next_line().await;
            };
            self.lock.run(third).await?;
            self.report(What::Unnests { level: second.hold_count() });
            second.unlock().await
        };
        me.scope(inside).await?;
        self.report(What::Unnests { level: outer.hold_count() });
        self.leave(outer).await
    }

    async fn take(&self, lock: &Mutex) -> Outcome<Guard> {
        let from = now_us();
        let guard = lock.lock().await?;
        self.report(What::Holds { token: guard.token(), waited_us: now_us() - from });
        Ok(guard)
    }

    async fn leave(&self, guard: Guard) -> Outcome<()> {
        self.report(What::Leaves);
        Ok(guard.unlock().await?)
    }

    fn report(&self, what: What) {
        report(&self.name, what);
    }
}

fn report(name: &str, what: What) {
    println!("{}", Event { at_us: now_us(), process: name.to_owned(), what }.line());
}
