#include "runtime/gradient_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <utility>

namespace dreamddp {

struct GradientHooks::Hook {
  // A tensor holds its accumulator weakly; without this reference the hook would go with it.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>())) accumulator;
  std::uintptr_t key;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             const std::function<void(std::size_t)>& on_gradient) {
  using torch::autograd::variable_list;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[index]);
    const std::uintptr_t key =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [on_gradient, index](const variable_list& outputs, const variable_list& /*inputs*/) {
              on_gradient(index);
              return outputs;
            },
            // Compiled autograd replays the graph without this hook; layers then join at the end of the
            // backward.
            [](torch::autograd::CompiledNodeArgs& /*args*/) {}));
    hooks_.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const Hook& hook : hooks_) {
    hook.accumulator->del_post_hook(hook.key);
  }
}

int current_backward() { return torch::autograd::get_current_graph_task_id(); }

void at_end_of_backward(std::function<void()> function) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(function));
}

}  // namespace dreamddp
