#include "validate/progress.h"

#include <optional>

#include "base/log.h"
#include "hardware/validation_note.h"

namespace gpuop::validate {

struct Progress::Impl : std::enable_shared_from_this<Impl> {
  Impl(Loop& l, ProgressOptions o, std::function<Result<kube::Client*>()> c)
      : loop(l), options(std::move(o)), make_client(std::move(c)) {
    if (options.told) written = "";
  }

  // What the annotation is to say; nullopt: it is not to be there.
  std::optional<std::string> wanted() const {
    if (!note) return std::nullopt;
    return hardware::format_validation_note(*note);
  }
  bool differs() const { return known ? written != wanted() : true; }

  void look() {
    // What nobody was told of need not be taken back.
    if (sending || pause || !differs() || (!written && known && !late)) return;
    sending = true;
    const auto text = wanted();
    const auto client = make_client();
    if (!client) return sent(text, fail(client.error()));
    const Json value = text ? Json(*text) : Json(nullptr);
    const Json patch{
        {"metadata", JsonObject{{"annotations", JsonObject{{hardware::kValidationAnnotation, value}}}}}};
    call = (*client)->patch(
        kube::kPods, options.ns, options.pod, kube::Patch::kMerge, patch, {},
        [self = shared_from_this(), text](const kube::ApiResult<>& result) {
          if (result) return self->sent(text, {});
          self->sent(text, fail(result.error().error("annotate pod '" + self->options.pod + "'")));
        });
  }

  void sent(const std::optional<std::string>& text, const Result<>& result) {
    sending = false;
    known = result.has_value();
    if (result) {
      written = text;
      fault.clear();
    } else if (result.error().text() != fault) {
      fault = result.error().text();
      log::warn("the step was not told", {{"error", fault}});
    }
    pause = loop.after(result ? options.gap : options.again, [this] {
      pause.reset();
      look();
    });
  }

  Loop& loop;
  ProgressOptions options;
  std::function<Result<kube::Client*>()> make_client;
  std::optional<hardware::ValidationNote> note;
  std::optional<std::string> written;  // what the annotation says, as far as we know
  std::string fault;                   // of the last write
  bool known = true;                   // false: the last write may have come through or not
  bool late = false;                   // the step has taken longer than we wait
  bool sending = false;
  Handle timer, pause, call;
};

Progress::Progress(Loop& loop, ProgressOptions options, std::function<Result<kube::Client*>()> client)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(client))) {}

Progress::~Progress() {
  impl_->timer.reset();
  impl_->pause.reset();
  impl_->call.reset();
}

void Progress::step(std::string_view component) {
  impl_->note = hardware::ValidationNote{std::string(component), false, {}};
  impl_->late = false;
  impl_->timer = impl_->loop.after(impl_->options.patience, [impl = impl_.get()] {
    impl->late = true;
    impl->look();
  });
  impl_->look();
}

void Progress::waits(bool failing, std::string_view reason) {
  if (!impl_->note) return;
  impl_->note->failing = failing;
  impl_->note->message = reason;
  impl_->look();
}

void Progress::passed() {
  impl_->note.reset();
  impl_->timer.reset();
  // The end does not wait for its turn.
  impl_->pause.reset();
  impl_->look();
}

bool Progress::idle() const {
  return !impl_->sending && !impl_->differs();
}

}  // namespace gpuop::validate
