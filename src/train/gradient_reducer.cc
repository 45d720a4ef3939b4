#include "train/gradient_reducer.h"

namespace ddl {

void GradientReducer::ready(Index begin, Index end) {
  if (begin == end) return;
  if (end == begin_ && end_ > begin_) {  // the backward pass goes from the last layer to the first
    begin_ = begin;
  } else {
    send();
    begin_ = begin, end_ = end;
  }
  if (end_ - begin_ >= bucket_floats_) send();
}

void GradientReducer::send() {
  if (end_ > begin_)
    on_their_way_.push_back(comm_.all_reduce(
        gradients_.subspan(static_cast<std::size_t>(begin_), static_cast<std::size_t>(end_ - begin_))));
  begin_ = end_ = 0;
}

void GradientReducer::finish() {
  send();
  for (Comm::Handle& handle : on_their_way_) handle->wait();
  on_their_way_.clear();
}

}  // namespace ddl
