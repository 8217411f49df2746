//! The floor of the other kinds of locks: their scripts with the same arguments, sent by hand.

use leasehold_testkit::bench::by_hand::{self, NOT_FREE, RETENTION_MS, TTL_MS, was_free, was_held};
use redis::Cmd;
use redis::aio::MultiplexedConnection;

use crate::Outcome;

/// An acquire and the release after it, on a connection of their own.
#[derive(Clone)]
pub(crate) struct Pair {
    connection: MultiplexedConnection,
    acquire: Cmd,
    release: Cmd,
}

impl Pair {
    /// Reads a read-write lock.
    pub(crate) async fn of_a_reader(url: &str, name: &str) -> Outcome<Self> {
        let mut reader = Reader::connect(url, name).await?;
        let id = by_hand::id();
        let acquire = reader.acquire_command(&id);
        let mut release = script(&mut reader.connection, RW_RELEASE, &reader.keys).await?;
        release.arg(&id).arg("PUBLISH").arg(&reader.channel).arg("read");
        release.arg(RETENTION_MS).arg("").arg(0);
        Ok(Self { connection: reader.connection, acquire, release })
    }

    /// Takes a permit of a semaphore that has so many.
    pub(crate) async fn of_a_permit(url: &str, name: &str, permits: usize) -> Outcome<Self> {
        let mut connection = by_hand::connection(url).await?;
        let keys = [
            name.to_owned(),
            format!("{{{name}}}:timeout"),
            format!("leasehold_permit_queue:{{{name}}}"),
        ];
        let (id, channel) = (by_hand::id(), permit_channel(name));
        let mut acquire = script(&mut connection, PERMIT_ACQUIRE, &keys).await?;
        acquire.arg(&id).arg(1).arg(TTL_MS).arg("PUBLISH").arg(&channel).arg(permits);
        acquire.arg("").arg(SHOWN).arg("NUMSUB");
        let mut release = script(&mut connection, PERMIT_RELEASE, &keys).await?;
        release.arg(&id).arg(1).arg(0).arg("PUBLISH").arg(&channel).arg("").arg("").arg("");
        Ok(Self { connection, acquire, release })
    }

    /// Fails if it is not granted at once.
    pub(crate) async fn acquire(&mut self) -> Outcome<()> {
        if was_free(self.connection.send_packed_command(&self.acquire).await?)? {
            Ok(())
        } else {
            Err(NOT_FREE.into())
        }
    }

    pub(crate) async fn release(&mut self) -> Outcome<()> {
        was_held(self.connection.send_packed_command(&self.release).await?)
    }
}

/// Readers of a read-write lock, who all ask on one connection.
pub(crate) struct Reader {
    connection: MultiplexedConnection,
    keys: [String; 3],
    channel: String,
    acquire: Cmd,
}

impl Reader {
    pub(crate) async fn connect(url: &str, name: &str) -> Outcome<Self> {
        let mut connection = by_hand::connection(url).await?;
        let keys = [
            name.to_owned(),
            format!("leasehold_token:{{{name}}}"),
            format!("leasehold_rw_queue:{{{name}}}"),
        ];
        let acquire = script(&mut connection, RW_ACQUIRE, &keys).await?;
        Ok(Self { connection, keys, channel: format!("redisson_rwlock:{{{name}}}"), acquire })
    }

    /// The lease `id` reads.
    pub(crate) async fn acquire(&mut self, id: &str) -> Outcome<()> {
        let acquire = self.acquire_command(id);
        match was_free(self.connection.send_packed_command(&acquire).await?)? {
            true => Ok(()),
            false => Err(NOT_FREE.into()),
        }
    }

    fn acquire_command(&self, id: &str) -> Cmd {
        let mut acquire = self.acquire.clone();
        acquire.arg(id).arg(1).arg(TTL_MS).arg(0).arg(RETENTION_MS).arg(1).arg(&self.channel);
        acquire.arg("").arg(SHOWN).arg("NUMSUB").arg("read").arg("PUBLISH");
        acquire
    }
}

/// The channel on which a semaphore's permits that came back are told.
pub(crate) fn permit_channel(name: &str) -> String {
    format!("redisson_sc:{{{name}}}")
}

async fn script(
    connection: &mut MultiplexedConnection,
    body: &str,
    keys: &[String],
) -> Outcome<Cmd> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(by_hand::load(connection, body).await?).arg(keys.len()).arg(keys);
    Ok(command)
}

const RW_ACQUIRE: &str =
    concat!(include_str!("../../lua/rw.lua"), include_str!("../../lua/rw_acquire.lua"));
const RW_RELEASE: &str =
    concat!(include_str!("../../lua/rw.lua"), include_str!("../../lua/rw_release.lua"));
const PERMIT_ACQUIRE: &str = concat!(
    include_str!("../../lua/queue.lua"),
    include_str!("../../lua/permits.lua"),
    include_str!("../../lua/permit_acquire.lua")
);
const PERMIT_RELEASE: &str = concat!(
    include_str!("../../lua/queue.lua"),
    include_str!("../../lua/permits.lua"),
    include_str!("../../lua/permit_release.lua")
);
/// How many of those who wait are listed: the library's own.
const SHOWN: u32 = 8;
