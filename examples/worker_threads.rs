//! A bank on plain threads: transfers lock two accounts, and call helpers that lock them again.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;

use leasehold::blocking::{Client, Mutex};

/// Balances that only the locks protect: without them, another thread could write between a read and a write.
struct Bank {
    locks: Vec<Mutex>,
    balances: Vec<AtomicI64>,
}

impl Bank {
    fn open(client: &Client) -> Self {
        let lock = |account| client.mutex(format!("example:bank:{account}"));
        let balances = (0..ACCOUNTS).map(|_| AtomicI64::new(OPENING)).collect();
        Self { locks: (0..ACCOUNTS).map(lock).collect(), balances }
    }

    /// Moves the amount if the balance suffices. Other threads see both changes or none.
    fn transfer(&self, from: usize, to: usize, amount: i64) -> Result<(), leasehold::Error> {
        // The lower account always comes first, so two threads cannot wait for each other.
        let first = self.locks[from.min(to)].lock()?;
        let second = self.locks[from.max(to)].lock()?;
        if self.balance(from)? >= amount {
            self.book(from, -amount)?;
            self.book(to, amount)?;
        }
        second.unlock()?;
        first.unlock()
    }

    /// Takes the lock itself, since it is also called on its own. Within a transfer, the thread already holds it.
    fn balance(&self, account: usize) -> Result<i64, leasehold::Error> {
        self.locks[account].run(|_| self.balances[account].load(SeqCst))
    }

    fn book(&self, account: usize, amount: i64) -> Result<(), leasehold::Error> {
        self.locks[account].run(|_| {
            let before = self.balances[account].load(SeqCst);
            thread::yield_now();
            self.balances[account].store(before + amount, SeqCst);
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url)?;
    let bank = Arc::new(Bank::open(&client));

    let clerk = |bank: Arc<Bank>, number: usize| {
        move || {
            (0..TRANSFERS).try_for_each(|turn| {
                let from = (number + turn) % ACCOUNTS;
                let to = (from + 1 + turn % (ACCOUNTS - 1)) % ACCOUNTS;
                bank.transfer(from, to, 1 + (number * turn) as i64 % 90)
            })
        }
    };
    let clerks: Vec<_> =
        (0..CLERKS).map(|number| thread::spawn(clerk(bank.clone(), number))).collect();
    for clerk in clerks {
        clerk.join().expect("no clerk panics")?;
    }

    let balances =
        (0..ACCOUNTS).map(|account| bank.balance(account)).collect::<Result<Vec<_>, _>>()?;
    let total: i64 = balances.iter().sum();
    println!(
        "{} transfers by {CLERKS} threads: {balances:?}, {total} in total",
        CLERKS * TRANSFERS
    );
    client.shutdown()?;
    if total != OPENING * ACCOUNTS as i64 || balances.iter().any(|&balance| balance < 0) {
        return Err("money was made or lost".into());
    }
    Ok(())
}

const ACCOUNTS: usize = 4;
const OPENING: i64 = 100;
const CLERKS: usize = 8;
const TRANSFERS: usize = 100;
