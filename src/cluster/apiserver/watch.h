// One open watch: events of a collection to one client (kubernetes-api.md §7.2).
//
// Little is buffered for a client that reads slowly: the stream falls back to a place in the collection's
// history and goes on from there when the client has taken something. One that takes nothing for a while, or
// falls behind what the history holds, is cut.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

class WatchStream : public Listener, public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(std::shared_ptr<Server> server, CallPtr call, Selection selection, View view, bool bookmarks);
  ~WatchStream() override;

  // Opens the answer; `initial`: sends the current objects first; `end_mark`: then the bookmark that says so.
  void open(bool initial, bool end_mark, std::uint64_t since);
  void changed(const Change& change) override;
  void gone() override { finish(); }
  void finish();  // with the terminating chunk
  void cut();     // as a broken connection

 private:
  void close(bool cleanly);
  // Sends what is still to be sent, until the client has enough for now.
  void pump();
  void deliver(const Change& change);
  bool full() const;
  void fall_behind();
  void watch_progress();
  void send(std::string_view type, const ObjectPtr& object);
  void send_error(const Status& status);
  void bookmark(bool initial_end, std::uint64_t version);
  void mark();
  void arm_bookmarks();

  std::shared_ptr<Server> server_;
  CallPtr call_;
  Selection selection_;
  View view_;
  std::string route_;
  bool bookmarks_;
  bool open_ = false;
  bool columns_sent_ = false;
  bool behind_ = false;            // changes are taken from the history
  bool end_mark_ = false;          // the bookmark after the initial objects is due
  std::uint64_t sent_ = 0;         // newest version that the client knows of
  std::deque<ObjectPtr> initial_;  // still to be sent
  Handle timeout_, mark_, last_mark_, stall_;
};

}  // namespace gpuop::cluster::api
