//! The texts of the scripts, as the library sends them.

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+)
    };
}

macro_rules! together {
    ($name:literal) => {
        concat!(
            "local function renew(KEYS, ARGV)\n",
            include_str!(concat!("../../../lua/", $name, ".lua")),
            "end\n\n",
            include_str!("../../../lua/renew_together.lua")
        )
    };
}

/// How a lock is given to a lease.
pub(crate) const TAKE: &str = script!("take");
/// The functions of a queue.
pub(crate) const QUEUE: &str = script!("queue");
/// What a client costs that stands still.
pub(crate) const SILENT: &str = script!("silent");
pub(crate) const RW: &str = script!("rw");
pub(crate) const LOCK_ACQUIRE: &str =
    script!("take", "lock_acquire", "queue", "silent", "lock_ask");
pub(crate) const LOCK_RENEW: &str = script!("lock_renew");
pub(crate) const LOCK_RELEASE: &str = script!("lock_release", "take", "queue", "lock_pass");
pub(crate) const LOCK_STATUS: &str = script!("queue", "lock_status");
pub(crate) const LOCK_RECLAIM: &str = script!("lock_reclaim");
pub(crate) const FENCE_RAISE: &str = script!("fence_raise");
pub(crate) const FORCE_UNLOCK: &str = script!("take", "queue", "force_unlock");
pub(crate) const GRACE_MARK: &str = script!("grace_mark");
pub(crate) const GROUP_NOTIFY: &str = script!("group_notify");
pub(crate) const GROUP_STATUS: &str = script!("group_status");
pub(crate) const ITEM_POP: &str = script!("item_take", "queue", "silent", "items", "item_pop");
pub(crate) const ITEM_PUSH: &str = script!("item_push", "queue", "silent", "items", "item_lend");
pub(crate) const ITEM_REDRIVE: &str =
    script!("item_redrive", "queue", "silent", "items", "item_lend");
pub(crate) const ITEM_SETTLE: &str = script!("item_ack", "queue", "silent", "items", "item_settle");
pub(crate) const ITEM_STATUS: &str = script!("queue", "silent", "items", "item_status");
pub(crate) const ITEM_RENEW: &str = script!("item_renew");
pub(crate) const LATCH_COUNT_DOWN: &str = script!("latch", "latch_count_down");
pub(crate) const LATCH_DELETE: &str = script!("latch", "latch_delete");
pub(crate) const LATCH_SET: &str = script!("latch", "latch_set");
pub(crate) const LATCH_STATUS: &str = script!("latch", "latch_status");
pub(crate) const LEADER_PROCLAIM: &str = script!("leader_proclaim");
pub(crate) const LEADER_STATUS: &str = script!("leader_status");
pub(crate) const LIST_PAGE: &str = script!("list_page");
pub(crate) const WAIT_FORGET: &str = script!("wait_forget");
pub(crate) const WAIT_NOTE: &str = script!("wait_note");
pub(crate) const WAIT_READ: &str = script!("wait_read");
pub(crate) const WAITED_CHANNELS: &str = script!("waited_channels");
pub(crate) const WAITING_LOOK: &str = script!("waiting_look");
pub(crate) const PERMIT_ACQUIRE: &str = script!("queue", "silent", "permits", "permit_acquire");
pub(crate) const PERMIT_RENEW: &str = script!("permit_renew");
pub(crate) const PERMIT_RELEASE: &str = script!("queue", "permits", "permit_release");
pub(crate) const PERMIT_RECLAIM: &str = script!("queue", "permits", "permit_reclaim");
pub(crate) const PERMIT_RESIZE: &str = script!("queue", "permits", "permit_resize");
pub(crate) const PERMIT_STATUS: &str = script!("queue", "permits", "permit_status");
pub(crate) const PREFLIGHT: &str = script!("preflight");
pub(crate) const SIGNAL_NOTIFY: &str = script!("signal_notify");
pub(crate) const SIGNAL_STATUS: &str = script!("signal_status");
pub(crate) const SYNCED: &str = script!("synced");
pub(crate) const RW_ACQUIRE: &str = script!("rw", "rw_acquire");
pub(crate) const READ_RENEW: &str = script!("read_renew");
pub(crate) const RW_RELEASE: &str = script!("rw", "rw_release");
pub(crate) const RW_STATUS: &str = script!("rw", "rw_status");
pub(crate) const RW_RECLAIM: &str = script!("rw", "rw_reclaim");
pub(crate) const RW_FORCE_UNLOCK: &str = script!("rw", "rw_force_unlock");

/// How several leases of one kind are renewed.
pub(crate) const RENEW_TOGETHER: &str = script!("renew_together");
/// The scripts that do so, by the names of those that renew one.
pub(crate) const TOGETHER: [(&str, &str); 4] = [
    ("lock_renew", together!("lock_renew")),
    ("read_renew", together!("read_renew")),
    ("permit_renew", together!("permit_renew")),
    ("item_renew", together!("item_renew")),
];

/// All others by name.
pub(crate) const ALL: [(&str, &str); 44] = [
    ("list_page", LIST_PAGE),
    ("wait_forget", WAIT_FORGET),
    ("wait_note", WAIT_NOTE),
    ("wait_read", WAIT_READ),
    ("waited_channels", WAITED_CHANNELS),
    ("waiting_look", WAITING_LOOK),
    ("lock_acquire", LOCK_ACQUIRE),
    ("lock_renew", LOCK_RENEW),
    ("lock_release", LOCK_RELEASE),
    ("lock_status", LOCK_STATUS),
    ("lock_reclaim", LOCK_RECLAIM),
    ("fence_raise", FENCE_RAISE),
    ("force_unlock", FORCE_UNLOCK),
    ("grace_mark", GRACE_MARK),
    ("group_notify", GROUP_NOTIFY),
    ("group_status", GROUP_STATUS),
    ("signal_notify", SIGNAL_NOTIFY),
    ("signal_status", SIGNAL_STATUS),
    ("synced", SYNCED),
    ("item_pop", ITEM_POP),
    ("item_push", ITEM_PUSH),
    ("item_redrive", ITEM_REDRIVE),
    ("item_renew", ITEM_RENEW),
    ("item_settle", ITEM_SETTLE),
    ("item_status", ITEM_STATUS),
    ("latch_count_down", LATCH_COUNT_DOWN),
    ("latch_delete", LATCH_DELETE),
    ("latch_set", LATCH_SET),
    ("latch_status", LATCH_STATUS),
    ("leader_proclaim", LEADER_PROCLAIM),
    ("leader_status", LEADER_STATUS),
    ("permit_acquire", PERMIT_ACQUIRE),
    ("permit_renew", PERMIT_RENEW),
    ("permit_release", PERMIT_RELEASE),
    ("permit_reclaim", PERMIT_RECLAIM),
    ("permit_resize", PERMIT_RESIZE),
    ("permit_status", PERMIT_STATUS),
    ("preflight", PREFLIGHT),
    ("rw_acquire", RW_ACQUIRE),
    ("read_renew", READ_RENEW),
    ("rw_release", RW_RELEASE),
    ("rw_status", RW_STATUS),
    ("rw_reclaim", RW_RECLAIM),
    ("rw_force_unlock", RW_FORCE_UNLOCK),
];
